"""Showing how far a run is: a live view on a terminal, a plain line now and then elsewhere.

Changes nothing of the run, and does not end it if nobody reads any more. Always on stderr: stdout is for data.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from gym.rollouts.flights import Stages
from gym.rollouts.snapshot import Snapshot, View, take

if TYPE_CHECKING:
    from rich.console import Group

LIVE_SECONDS = 0.25
STAGES_SECONDS = 1.0
"""How often environment servers are asked for the stages of their episodes, for the live view."""
PLAIN_SECONDS = 5.0
PLAIN_LATER_SECONDS = 30.0
"""How often a line comes once a run has gone on for a minute."""

Ask = Callable[[Iterable[str]], Awaitable[Stages | None]]
"""The stages of the episodes at these environment servers."""


@contextlib.asynccontextmanager
async def shown(view: View, ask: Ask, stream: TextIO) -> AsyncGenerator[None]:
    """Show a run on `stream` for as long as the context lasts."""
    started, done_before = time.monotonic(), view.ledger.done
    stages: Stages | None = None

    async def look() -> None:
        nonlocal stages
        stages = await ask({flight.environment for flight in view.flights.values()})

    def now() -> Snapshot:
        return take(view, stages, started=started, done_before=done_before, now=time.monotonic())

    told = False

    async def tell() -> None:
        """A line each time, and once what the first failed attempt met: whose fault it is should not wait for the end."""
        nonlocal told
        await look()
        state = now()
        print(state.line(), file=stream, flush=True)
        if state.first_failure and not told:
            told = True
            print(f"the first failed attempt, of {state.first_failure}", file=stream, flush=True)

    def pause() -> float:
        return PLAIN_SECONDS if time.monotonic() - started < 60 else PLAIN_LATER_SECONDS

    if not _draws(stream):
        async with _repeated(pause, tell):
            yield
        return
    from rich.console import Console
    from rich.live import Live

    # What else is said on stderr meanwhile comes to stand above the view; stdout is none of its business.
    live = Live(console=Console(file=stream), auto_refresh=False, transient=True, redirect_stdout=False)

    async def draw() -> None:
        live.update(_drawn(now()), refresh=True)

    unreadable = contextlib.suppress(OSError, ValueError)  # a terminal that is gone must not end the run
    with unreadable:
        live.start()
    try:
        async with _repeated(lambda: STAGES_SECONDS, look), _repeated(lambda: LIVE_SECONDS, draw):
            yield
    finally:
        with unreadable:
            live.stop()


def _draws(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


@contextlib.asynccontextmanager
async def _repeated(pause: Callable[[], float], step: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(pause())
            try:
                await step()
            except (OSError, ValueError):
                return  # nobody reads stderr any more; the run goes on

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=1)


def _drawn(state: Snapshot) -> "Group":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(state.expected, 1), completed=state.done, width=12)
    head.add_row(bar, Text(state.done_words, style="bold"), Text(state.reward_words), Text(state.time_words))
    lines = [
        (f"{state.running_words}, {state.pace_words}", ""),
        (", ".join(state.waiting_words), "yellow"),
        (", ".join(state.ended_words), ""),
        (state.failed_words, "yellow"),
        (f"the first, of {state.first_failure}" if state.first_failure else "", "yellow"),
    ]
    return Group(head, *(Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in lines if text))
