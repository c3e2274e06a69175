"""What an episode must give back, whatever happens to it.

Callbacks run one after the other, last registered first, each within a bound of its own, so that
one that hangs cannot starve the rest. They run shielded: cancelling the episode starts the
cleanup, and cancelling it again does not cut it short.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger("gym.servers.cleanup")


class CleanupHandle:
    """One thing to give back. Closing it again after a success does nothing."""

    def __init__(self, what: str, give_back: Callable[[], Awaitable[Any]], timeout: float) -> None:
        self.what = what
        self._give_back = give_back
        self._timeout = timeout
        self._done = False
        self._result: Any = None

    @property
    def done(self) -> bool:
        """Whether it has been given back."""
        return self._done

    async def close(self) -> Any:
        """Give it back now, and return what that returned. Raises TimeoutError after the bound, and what the callback raises."""
        if not self._done:
            async with asyncio.timeout(self._timeout):
                self._result = await self._give_back()
            self._done = True
        return self._result


class CleanupStack:
    """The callbacks of one episode; `timeout` bounds each, in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._handles: list[CleanupHandle] = []

    def register(self, what: str, give_back: Callable[[], Awaitable[Any]]) -> CleanupHandle:
        """Have `give_back` called at the end. Register before the thing is asked for."""
        handle = CleanupHandle(what, give_back, self._timeout)
        self._handles.append(handle)
        return handle

    async def unwind(self, *, tries: int = 1) -> list[str]:
        """Give everything back, each thing with so many tries, and return one line for each that could not be.

        Shielded from cancellation, which is raised afterwards.
        """
        if all(handle.done for handle in self._handles):
            return []
        work = asyncio.ensure_future(self._unwind(tries))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return work.result()

    async def _unwind(self, tries: int) -> list[str]:
        problems: list[str] = []
        for handle in reversed(self._handles):
            for left in reversed(range(tries)):
                try:
                    await handle.close()
                    break
                except Exception as error:
                    reason = f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else str(error)
                    log.error("cannot clean up %s: %s%s", handle.what, reason, "; once more" if left else "")
                    if not left:
                        problems.append(f"{handle.what}: {reason}")
        return problems
