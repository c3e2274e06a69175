"""Waiting for tasks that are not ours to cancel, at a third of what `asyncio.wait` costs for one or two.

Every call of a session and every model call waits so at least once.
"""

import asyncio
from typing import Any


async def first_done(*futures: "asyncio.Future[Any]") -> None:
    """Return once one of `futures` is done. None of them is cancelled when the waiting is; results and failures stay theirs."""
    if any(future.done() for future in futures):
        return
    waiter = asyncio.get_running_loop().create_future()

    def wake(_: "asyncio.Future[Any]") -> None:
        if not waiter.done():
            waiter.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)
