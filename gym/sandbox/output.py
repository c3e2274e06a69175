"""A command's output that stays within bounds.

Invariant: whatever a command prints, at most the bound is kept in memory, and bytes are kept as they are.
"""

_PIECE = 64 * 1024


class BoundedOutput:
    """The start and the end of a byte stream, each at most half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room + _PIECE:  # cut rarely, so that a flood costs little
            del self._tail[: len(self._tail) - self._tail_room]

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self._total > self._head_room + self._tail_room

    def content(self) -> bytes:
        """What was kept; where the middle is missing it says so."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        left_out = self._total - self._head_room - self._tail_room
        return (
            bytes(self._head) + f"\n[... {left_out} bytes left out ...]\n".encode() + bytes(self._tail[len(self._tail) - self._tail_room :])
        )
