"""Showing how far a run is: a live view on a terminal, a plain line every few seconds elsewhere.

Reads the ledger and changes nothing. Always on stderr: stdout is for data.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TextIO

from gym.protocol.rollouts import Outcome
from gym.rollouts.ledger import Ledger

if TYPE_CHECKING:
    from rich.console import Group

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 5.0


@contextlib.asynccontextmanager
async def shown(ledger: Ledger, stream: TextIO) -> AsyncGenerator[None]:
    """Show the ledger on `stream` for as long as the context lasts."""
    started = time.monotonic()
    if stream.closed or not stream.isatty():
        async with _every(PLAIN_SECONDS, _plain(ledger, stream, started)):
            yield
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    live = Live(console=console, auto_refresh=False, transient=True)
    unreadable = contextlib.suppress(OSError, ValueError)  # a terminal that is gone must not end the run
    with unreadable:
        live.start()
    try:
        async with _every(LIVE_SECONDS, lambda: live.update(_view(ledger, time.monotonic() - started), refresh=True)):
            yield
    finally:
        with unreadable:
            live.stop()


def _plain(ledger: Ledger, stream: TextIO, started: float) -> Callable[[], None]:
    """Prints a line each time, and once what the first failed attempt met: whose fault it is should not wait for the end."""
    told = False

    def show() -> None:
        nonlocal told
        print(line(ledger, time.monotonic() - started), file=stream, flush=True)
        if ledger.first_failure is not None and not told:
            told = True
            print(f"the first failed attempt, of {ledger.first_failure}", file=stream, flush=True)

    return show


@contextlib.asynccontextmanager
async def _every(seconds: float, show: Callable[[], None]) -> AsyncGenerator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                show()
            except (OSError, ValueError):
                return  # nobody reads stderr any more; the run goes on

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=1)


def line(ledger: Ledger, seconds: float) -> str:
    """The state of a run on one line."""
    parts = [f"{ledger.done}/{ledger.expected} done", f"{ledger.running} running"]
    if ledger.waiting:
        parts.append(f"{ledger.waiting} waiting for a full server")
    for outcome in (Outcome.MASKED, Outcome.FAILED):
        if number := ledger.count(outcome):
            parts.append(f"{number} {outcome}")
    if ledger.failed_attempts:
        parts.append(f"failed attempts: {_kinds(ledger)}")
    if ledger.mean_reward is not None:
        parts.append(f"mean reward {ledger.mean_reward:.3f}")
    parts.append(f"{duration(seconds)} gone")
    if (left := eta(ledger, seconds)) is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def eta(ledger: Ledger, seconds: float) -> float | None:
    """Seconds left at the pace so far; None while nothing is known."""
    ended = ledger.done - ledger.failed_attempts.get("invalid_task", 0)
    left = ledger.expected - ledger.done
    return seconds / ended * left if ended > 0 and left else None


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def _kinds(ledger: Ledger) -> str:
    common = ledger.failed_attempts.most_common(4)
    more = len(ledger.failed_attempts) - len(common)
    return " ".join(f"{kind} {number}" for kind, number in common) + (f" and {more} other kinds" if more else "")


def _view(ledger: Ledger, seconds: float) -> "Group":
    from rich.console import Group, RenderableType
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    left = eta(ledger, seconds)
    table = Table.grid(padding=(0, 2))
    table.add_row(
        ProgressBar(total=max(ledger.expected, 1), completed=ledger.done, width=12),
        f"[bold]{ledger.done}[/]/{ledger.expected} done",
        f"{ledger.running} running" + (f" ({ledger.waiting} waiting)" if ledger.waiting else ""),
        f"mean reward {ledger.mean_reward:.3f}" if ledger.mean_reward is not None else "",
        f"{duration(seconds)} gone" + (f", about {duration(left)} left" if left is not None else ""),
    )
    rows: list[RenderableType] = [table]
    ended = ", ".join(f"{ledger.count(outcome)} {outcome}" for outcome in Outcome if outcome is not Outcome.OWED and ledger.count(outcome))
    if ended:
        rows.append(Text(ended))
    if ledger.failed_attempts:
        rows.append(Text(f"failed attempts: {_kinds(ledger)}", style="yellow"))
    if ledger.first_failure:
        rows.append(Text(f"the first, of {ledger.first_failure}", style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*rows)
