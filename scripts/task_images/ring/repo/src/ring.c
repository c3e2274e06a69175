#include "ring.h"

void ring_init(struct ring *ring, unsigned char *data, size_t size)
{
    ring->data = data;
    ring->size = size;
    ring->start = ring->used = 0;
}

size_t ring_write(struct ring *ring, const unsigned char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count && ring->start + ring->used < ring->size) {
        ring->data[ring->start + ring->used] = bytes[done++];
        ring->used++;
    }
    return done;
}

size_t ring_read(struct ring *ring, unsigned char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count && ring->used > 0) {
        bytes[done++] = ring->data[ring->start++];
        ring->used--;
    }
    if (ring->used == 0)
        ring->start = 0;
    return done;
}
