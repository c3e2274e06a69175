"""Cleanup that runs to its end, whatever is cancelled around it.

Invariant: the cleanup is bounded in time, and a cancellation that arrives meanwhile is delivered
afterwards instead of lost.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run `work` for at most `seconds`, shielded from cancellation of the caller.

    Raises what `work` raises, TimeoutError if it took too long, and CancelledError, once the work
    has ended, if the caller was cancelled meanwhile.
    """
    task = asyncio.ensure_future(asyncio.wait_for(work, seconds))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # the outcome is read from the task below
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # taken, so that the loop does not complain about it
        raise cancelled
    return task.result()
