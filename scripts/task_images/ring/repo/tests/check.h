/* What all tests share: one ring of four bytes. */
#include <stdio.h>
#include <string.h>

#include "ring.h"

static struct ring ring;
static unsigned char room[4], out[8];
static int failures;

static void check(const char *name, int passed)
{
    printf("[%s]: %s\n", passed ? "ok" : "err", name);
    failures += !passed;
}

static size_t put(const char *text)
{
    return ring_write(&ring, (const unsigned char *)text, strlen(text));
}

static int holds(const char *text)
{
    size_t count = ring_read(&ring, out, sizeof out);
    return count == strlen(text) && memcmp(out, text, count) == 0;
}
