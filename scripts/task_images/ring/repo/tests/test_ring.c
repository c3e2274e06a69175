#include "check.h"

int main(void)
{
    ring_init(&ring, room, sizeof room);
    check("What is written can be read", put("abc") == 3 && holds("abc"));
    check("A full buffer takes no more", put("abcdef") == 4 && holds("abcd"));
    check("An empty buffer gives nothing", holds(""));
    return failures > 0;
}
