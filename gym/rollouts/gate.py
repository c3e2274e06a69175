"""How many episodes are out: a limit that may be changed while they run.

Invariant: nobody enters while the limit is reached, or before the time until which the gate was shut; lowering the limit takes
nothing back that is out. One may wait at a time.
"""

import asyncio
import time


class Gate:
    """Counts who is out."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.out = 0
        self.shut_until = 0.0
        """Monotonic seconds; nobody enters before."""
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """Wait for room, and take it."""
        while True:
            wait = self.shut_until - time.monotonic() if self.shut_until else 0.0
            if wait <= 0 and self.out < self.limit:
                self.out += 1
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(wait if wait > 0 else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def leave(self) -> None:
        """Give the room back."""
        self.out -= 1
        self._changed.set()

    def set(self, limit: int, shut_until: float) -> None:
        """Change the limit, and until when the gate is shut."""
        self.limit, self.shut_until = limit, shut_until
        self._changed.set()
