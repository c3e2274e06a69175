"""How fast things may begin: so many per second on average, with a burst, and never in step with other processes.

Invariant: turns are given in the order in which they were asked for, and over any long time no more
than `rate` per second. Apart from it, and not here: how many things may run at once.
"""

import asyncio
import random
import time
from collections.abc import Callable


class Pace:
    """Turns at `rate` per second, `burst` of them at once after a pause; `jitter` (0 to 1) is the part by which gaps vary."""

    def __init__(self, rate: float, burst: int, jitter: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap = 1 / rate
        self._ahead = (burst - 1) / rate
        self._jitter = jitter
        self._clock = clock
        self._next = clock()
        """When the next turn would be due if nobody had saved any."""

    def delay(self) -> float:
        """Take a turn: the seconds to wait for it. One that is not used is lost."""
        now = self._clock()
        due = max(self._next, now)
        self._next = due + self._gap * random.uniform(1 - self._jitter, 1 + self._jitter)
        return max(0.0, due - self._ahead - now)

    async def turn(self) -> None:
        """Wait for a turn."""
        delay = self.delay()
        if delay > 0:
            await asyncio.sleep(delay)
