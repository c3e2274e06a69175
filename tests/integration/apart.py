"""Servers in a thread of their own, for tests whose programs are other processes."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

Serve = Callable[[asyncio.Event, threading.Event], Coroutine[Any, Any, None]]
"""Sets the second once it serves, and ends when the first is set."""


@contextlib.contextmanager
def served_apart(serve: Serve) -> Iterator[None]:
    """Have it serve while the context lasts."""
    loop, stop, up = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop, up)), daemon=True)
    thread.start()
    try:
        assert up.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
