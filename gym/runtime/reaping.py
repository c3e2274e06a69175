"""The reaper of a run: at its start, every 30 s while it lives, and at its end, be it that its parent is killed.

It looks where the run's own providers are, and where dead runs of this user say that they owe
something. Invariants: a provider that does not answer keeps nobody from starting or stopping; and
after the end a sandbox of the run is either gone, or in a journal that stays.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from gym.config.errors import UserError
from gym.runtime.folder import clear_dead_runs, lease_folders
from gym.runtime.prepare import Running
from gym.sandbox.leases import BEAT_SECONDS, LeaseFolder

if TYPE_CHECKING:
    from gym.sandbox.reaper import Found, Reaper, Report

log = logging.getLogger("gym.runtime")

_MARGIN_SECONDS = 3.0
"""What the end may take beyond the time that a late create may take to show."""


@contextlib.asynccontextmanager
async def reaping(running: Running) -> AsyncGenerator[None]:
    """Reap in the background; at the end everything of this run goes. A run without sandboxes pays nothing for it."""
    blocks = running.plan.sandbox_providers
    if not blocks and not lease_folders():
        yield
        return
    if blocks:
        try:
            running.folder.leases.write_providers(blocks)
            running.folder.leases.beat()
        except OSError as error:
            raise UserError(f"cannot write the lease journal in {running.folder.path}: {error.strerror or error}") from error
    reaper = RunReaper(running)
    tasks = [asyncio.ensure_future(work) for work in ([reaper.beat_forever()] if blocks else []) + [reaper.reap_forever()]]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if blocks:
                await reaper.last()
        finally:
            await reaper.aclose()


class RunReaper:
    """A reaper, and the run that it works for."""

    def __init__(self, running: Running) -> None:
        from gym.sandbox.reaper import Reaper

        self._running = running
        self._reaper = Reaper([])
        self._known: set[str] = set()
        self._said: set[str] = set()
        self._add(running.run_id, running.plan.sandbox_providers)

    async def beat_forever(self) -> None:
        """Give signs of life, for reapers that cannot see our processes."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                self._running.folder.leases.beat()
            except OSError as error:
                log.warning("cannot write the heartbeat of the run: %s", error)

    async def reap_forever(self) -> None:
        """Release what dead owners left, now and every 30 s."""
        from gym.sandbox.reaper import REAP_SECONDS

        while True:
            try:
                await self._pass()
            except Exception as error:  # a defect here must not cost the passes to come
                log.error("a pass of the reaper failed: %s: %s", type(error).__name__, error, exc_info=True)
            await asyncio.sleep(REAP_SECONDS)

    async def _pass(self) -> None:
        folders = lease_folders()
        for folder in folders:
            if folder.run_id not in self._known and folder.owed():
                self._add(folder.run_id, folder.providers())
        self._reaper.folders = folders
        report = await self._reaper.reap()
        for problem in report.problems:
            self._say_once(problem)
        if report.released:
            networks = sum(found.is_network for found in report.released)
            counts = ((len(report.released) - networks, "sandbox(es)"), (networks, "network(s)"))
            what = " and ".join(f"{count} {kind}" for count, kind in counts if count)
            self._running.say(f"released {what} whose owners are gone")
        clear_dead_runs()

    async def last(self) -> None:
        """Release every sandbox of this run, whose servers have all ended."""
        self._reaper.folders = [self._running.folder.leases]
        report = await _to_the_end(self._reaper, self._running.run_id)
        left_over = [found for found in report.released if not found.is_network]  # that one goes with every run
        if left_over:
            self._running.say(f"removed {len(left_over)} left-over sandbox(es)")
        for problem in report.problems:
            self._running.say(f"cannot look for left-over sandboxes: {problem}")
        if report.pending:
            self._running.say(f"{report.pending} sandbox(es) may be left: the next start releases them, or 'gym sandbox reap'")

    def _add(self, run_id: str, blocks: Mapping[str, Mapping[str, Any]]) -> None:
        from gym.sandbox.registry import provider_from_block
        from gym.sandbox.spec import SandboxError

        self._known.add(run_id)
        for name, block in blocks.items():
            try:
                self._reaper.add(provider_from_block(name, block))
            except (SandboxError, ValueError) as error:
                self._say_once(f"sandboxes of provider {name} of run {run_id} cannot be looked for: {error}")

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._running.say(line)

    async def aclose(self) -> None:
        """Let go of the engines."""
        await self._reaper.aclose()


async def _to_the_end(reaper: "Reaper", run_id: str) -> "Report":
    """Release all of a run whose servers have ended, until nothing is on the way any more; what that gave, of all passes together."""
    from gym.sandbox.reaper import SETTLE_SECONDS

    released: list[Found] = []
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS + _MARGIN_SECONDS
    while True:
        report = await reaper.reap(run_id, everything_of=run_id)
        released += report.released
        if report.problems or not report.pending or asyncio.get_running_loop().time() > deadline:
            report.released = released
            return report
        await asyncio.sleep(0.5)


def release_the_rest(leases: LeaseFolder) -> None:
    """For the last server of a run whose parent was killed: release what the run still owes. What cannot be stays journalled."""
    from gym.sandbox.reaper import Reaper
    from gym.sandbox.registry import provider_from_block
    from gym.sandbox.spec import SandboxError

    async def release() -> None:
        reaper = Reaper([], [leases])
        for name, block in leases.providers().items():
            with contextlib.suppress(SandboxError, ValueError):
                reaper.add(provider_from_block(name, block))
        try:
            report = await _to_the_end(reaper, leases.run_id)
        finally:
            await reaper.aclose()
        for problem in report.problems:
            log.warning("what run %s left cannot be released: %s", leases.run_id, problem)

    asyncio.run(release())
