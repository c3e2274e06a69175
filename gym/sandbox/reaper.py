"""Releases what belongs to dead owners, through any provider: by the labels on sandboxes, and by lease journals.

Labels find what the journals do not know (a journal that is lost); journals find what labels do not
show yet (a create whose reply was lost, or that its owner could not take back). A run's own network is
looked after as its sandboxes are, and goes after them. Invariants: nothing of a live owner, of another
user or of unknown origin is touched; a lease is settled only when its provider has said, twice and some
time apart if the create may still be under way, that there is nothing; a provider that cannot be reached
is reported, and asked again in the next pass.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gym.sandbox.cleanup import finish
from gym.sandbox.handles import STOP_BOUND_S
from gym.sandbox.leases import Lease, LeaseFolder
from gym.sandbox.owners import Here, Judgement, Owner, judge
from gym.sandbox.ownership import NETWORK, ROLE, RUN_ID
from gym.sandbox.provider import Provider, SandboxHandle
from gym.sandbox.spec import SandboxError, SandboxStatus

log = logging.getLogger(__name__)

REAP_SECONDS = 30.0
SETTLE_SECONDS = 10.0
"""How long after its owner's end a create that had been sent may still come about."""
_AT_ONCE = 8


@dataclass(frozen=True)
class Found:
    """One sandbox, or one lease whose sandbox is not to be seen (`status` is None)."""

    sandbox_id: str
    place: str
    labels: Mapping[str, str]
    judgement: Judgement
    status: SandboxStatus | None = None
    lease: Lease | None = None
    book: Path | None = None
    """The file of the lease."""

    @property
    def is_network(self) -> bool:
        """Whether it is a run's network, and no sandbox."""
        return self.labels.get(ROLE) == NETWORK

    @property
    def given_up(self) -> bool:
        """Whether its owner lives and wants it gone."""
        return self.lease is not None and self.lease.given_up is not None


@dataclass
class Report:
    """What one pass did. `pending` counts leases that another pass must look at."""

    found: list[Found] = field(default_factory=list[Found])
    released: list[Found] = field(default_factory=list[Found])
    problems: list[str] = field(default_factory=list[str])
    pending: int = 0
    unreached: frozenset[str] = frozenset()
    """The places that gave no answer."""


class Reaper:
    """Passes over providers and lease folders. One object sees a create that comes late; it is made once and kept."""

    def __init__(self, providers: Iterable[Provider], folders: Iterable[LeaseFolder] = ()) -> None:
        self._providers: dict[str, Provider] = {}
        for provider in providers:
            self.add(provider)
        self.folders = list(folders)
        self._missing_since: dict[str, float] = {}

    def add(self, provider: Provider) -> None:
        """Look there too, in each of its places that is not known already."""
        for part in provider.parts:
            self._providers.setdefault(part.place, part)

    async def survey(self, run_id: str | None = None) -> Report:
        """Everything of ours, judged, and nothing done: of all runs, or of one."""
        report = Report()
        here = Here(beats={beat.run_id: beat.at for folder in self.folders if (beat := folder.heartbeat()) is not None})
        leases = {lease.sandbox_id: (lease, path) for folder in self.folders for path, found in folder.owed().items() for lease in found}
        unreached: set[str] = set()
        for place, provider in self._providers.items():
            try:
                records = await provider.find(run_id=run_id)
                if provider.networks is not None:
                    records += await provider.networks.find(run_id=run_id)
            except SandboxError as error:
                report.problems.append(str(error))
                unreached.add(place)
                continue
            for record in records:
                lease, path = leases.pop(record.sandbox_id, (None, None))
                judgement = judge(record.labels, here)
                report.found.append(Found(record.sandbox_id, place, record.labels, judgement, record.status, lease, path))
        for lease, path in leases.values():
            if run_id is not None and lease.labels.get(RUN_ID) != run_id:
                continue
            status = SandboxStatus.UNKNOWN if lease.place in unreached else None
            report.found.append(Found(lease.sandbox_id, lease.place, lease.labels, judge(lease.labels, here), status, lease, path))
        report.unreached = frozenset(unreached)
        return report

    async def reap(self, run_id: str | None = None, *, unknown: bool = False, everything_of: str | None = None) -> Report:
        """Release orphans; with `unknown` also what is ours and cannot be judged.

        `everything_of` names a run whose own end this is: all of its sandboxes go, whatever their owner.
        """
        report = await self.survey(run_id)

        def wanted(found: Found) -> bool:
            owner = found.judgement.owner
            if owner is Owner.FOREIGN:
                return False
            ours = everything_of is not None and found.labels.get(RUN_ID) == everything_of
            return ours or found.judgement.releasable or found.given_up or (unknown and owner is Owner.UNKNOWN)

        slots = asyncio.Semaphore(_AT_ONCE)

        async def release(found: Found) -> None:
            async with slots:
                await self._release(found, report)

        chosen = [found for found in report.found if wanted(found)]
        await asyncio.gather(*(release(found) for found in chosen if not found.is_network))
        await asyncio.gather(*(release(found) for found in chosen if found.is_network))
        return report

    async def _release(self, found: Found, report: Report) -> None:
        if found.place in report.unreached:
            report.pending += 1
            return
        provider = self._providers.get(found.place)
        if provider is None:
            report.pending += 1
            report.problems.append(f"sandbox {found.sandbox_id} was made at {found.place}, which no provider of this configuration reaches")
            return
        try:
            if not await finish(_close(provider, found), STOP_BOUND_S):
                report.pending += 1
                return
        except (SandboxError, TimeoutError) as error:
            report.pending += 1
            report.problems.append(str(error) or f"sandbox {found.sandbox_id} did not stop within {STOP_BOUND_S:g} s")
            return
        if found.status is not None:
            report.released.append(found)
        elif not self._settled(found):
            report.pending += 1
            return
        self._missing_since.pop(found.sandbox_id, None)
        if found.lease is not None and found.book is not None:
            LeaseFolder(found.book.parent.parent).note_gone(found.book, found.lease)

    def _settled(self, found: Found) -> bool:
        """Whether a sandbox that is not there will not come any more."""
        now = time.time()
        assert found.lease is not None
        given_up = found.lease.given_up
        if given_up is not None and now - given_up > SETTLE_SECONDS:
            return True
        since = self._missing_since.setdefault(found.sandbox_id, now)
        beats = [beat.at for folder in self.folders if (beat := folder.heartbeat()) and beat.run_id == found.labels.get(RUN_ID)]
        long_dead = bool(beats) and now - beats[0] > 6 * SETTLE_SECONDS
        return long_dead or now - since >= SETTLE_SECONDS

    async def aclose(self) -> None:
        """Let go of the providers' connections."""
        await asyncio.gather(*(provider.aclose() for provider in self._providers.values()), return_exceptions=True)


async def _close(provider: Provider, found: Found) -> bool:
    """End a sandbox or remove a network; False for a network that sandboxes are in still."""
    if not found.is_network:
        await provider.close(SandboxHandle(found.sandbox_id, "/"))
        return True
    return provider.networks is None or await provider.networks.remove(found.sandbox_id)
