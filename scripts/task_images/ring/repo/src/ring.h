/* A ring buffer of bytes. */
#ifndef RING_H
#define RING_H

#include <stddef.h>

struct ring {
    unsigned char *data;
    size_t size, start, used;
};

/* The buffer holds `size` bytes at `data`, which stay the caller's. */
void ring_init(struct ring *ring, unsigned char *data, size_t size);

/* How many of the `count` bytes found room. */
size_t ring_write(struct ring *ring, const unsigned char *bytes, size_t count);

/* How many bytes were taken out, at most `count`. */
size_t ring_read(struct ring *ring, unsigned char *bytes, size_t count);

#endif
