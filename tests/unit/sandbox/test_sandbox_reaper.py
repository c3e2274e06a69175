"""Leases and the reaper: what is written when, and what goes, against providers that lie, hang and come late."""

import asyncio
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from gym.sandbox import reaper as module
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.leases import LeaseBook, LeaseFolder, Leases
from gym.sandbox.ownership import NETWORK, OWNER_PID, OWNER_USER, Ownership
from gym.sandbox.pacing import Pace
from gym.sandbox.provider import Capabilities, Provider, SandboxHandle, mark_doubtful
from gym.sandbox.reaper import Reaper
from gym.sandbox.spec import SandboxError, SandboxRecord, SandboxSpec, SandboxSpecError, SandboxStatus

OWNER = Ownership("run", "box")
DEAD = {OWNER_PID: str(2**22 + 1)}


class FakeProvider:
    """Sandboxes in a dictionary."""

    name = "fake"
    networks: Any = None
    capabilities = Capabilities(True, True, True, True, False, False, frozenset())

    def __init__(self, place: str = "fake here") -> None:
        self.place = place
        self.parts = (self,)
        self.boxes: dict[str, dict[str, str]] = {}
        self.broken: set[str] = set()
        self.error: BaseException | None = None
        self.seen_in_journal: list[str] = []
        self.folder: LeaseFolder | None = None
        self.closed = False

    def _check(self, what: str) -> None:
        if what in self.broken:
            raise SandboxError(f"{what} does not answer")

    async def create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> SandboxHandle:
        if self.folder is not None:
            self.seen_in_journal = owed(self.folder)
        if self.error is not None:
            raise self.error
        self.boxes[sandbox_id] = ownership.labels(60, {})
        return SandboxHandle(sandbox_id, "/")

    async def find(self, *, run_id: str | None = None, instance: str | None = None) -> list[SandboxRecord]:
        self._check("find")
        return [SandboxRecord(name, SandboxStatus.RUNNING, labels) for name, labels in self.boxes.items()]

    async def close(self, handle: SandboxHandle) -> None:
        self._check("close")
        self.boxes.pop(handle.sandbox_id, None)

    async def aclose(self) -> None:
        self.closed = True


def as_provider(fake: FakeProvider) -> Provider:
    return cast(Provider, fake)


def owed(folder: LeaseFolder) -> list[str]:
    return [lease.sandbox_id for leases in folder.owed().values() for lease in leases]


@pytest.fixture
def folder(tmp_path: Path) -> LeaseFolder:
    return LeaseFolder(tmp_path / "run")


@pytest.fixture
def leases(folder: LeaseFolder) -> Leases:
    folder.path.parent.mkdir()
    return LeaseBook(folder.book_path("box")).at("sandbox")


@pytest.fixture
def fake() -> FakeProvider:
    return FakeProvider()


async def start(fake: FakeProvider, leases: Leases | None) -> OwnedSandbox:
    return await OwnedSandbox.start(as_provider(fake), SandboxSpec(image="i"), OWNER, leases=leases)


async def test_the_id_is_in_the_journal_while_it_is_asked_for_and_until_it_is_gone(
    fake: FakeProvider, folder: LeaseFolder, leases: Leases
) -> None:
    fake.folder = folder
    box = await start(fake, leases)
    assert fake.seen_in_journal == owed(folder) == [box.sandbox_id]
    assert folder.book_path("box").stat().st_mode & 0o777 == 0o600
    fake.broken = {"close"}
    with pytest.raises(SandboxError):
        await box.stop()
    assert owed(folder) == [box.sandbox_id]
    fake.broken = set()
    await box.stop()
    assert owed(folder) == []
    leases.book.close()
    assert not folder.book_path("box").exists()


async def test_a_journal_that_cannot_be_written_means_no_create(fake: FakeProvider, folder: LeaseFolder, leases: Leases) -> None:
    folder.path.mkdir()
    folder.book_path("box").mkdir()
    with pytest.raises(SandboxError, match="lease journal") as caught:
        await start(fake, leases)
    assert caught.value.kind == "persistence_failed"
    assert fake.boxes == {}


@pytest.mark.parametrize(
    ("error", "stays"),
    [(SandboxSpecError("no"), False), (asyncio.CancelledError(), False), (SandboxError("lost"), True), (asyncio.CancelledError(), True)],
)
async def test_a_create_that_fails(
    fake: FakeProvider, folder: LeaseFolder, leases: Leases, error: BaseException, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was refused or taken back owes nothing; a doubtful one is looked for, though its owner lives."""
    fake.error = error
    if stays:
        mark_doubtful(error)
    with pytest.raises(type(error)):
        await start(fake, leases)
    assert bool(owed(folder)) is stays
    if not stays:
        return
    reaper = Reaper([as_provider(fake)], [folder])
    assert (await reaper.reap()).pending == 1
    (late,) = owed(folder)
    fake.boxes[late] = OWNER.labels(60, {})
    report = await reaper.reap()
    assert [found.sandbox_id for found in report.released] == [late]
    assert (fake.boxes, owed(folder), report.pending) == ({}, [], 0)


async def test_a_standalone_use_needs_no_journal(fake: FakeProvider) -> None:
    box = await start(fake, None)
    await box.stop()
    assert fake.boxes == {}


async def test_only_what_is_ours_and_dead_goes(fake: FakeProvider) -> None:
    ours = OWNER.labels(60, {})
    fake.boxes = {
        "alive": ours,
        "dead": {**ours, **DEAD},
        "other user": {**ours, **DEAD, OWNER_USER: "1:other"},
        "other host": {**ours, **DEAD, "nemo-gym.owner-host": "elsewhere"},
        "no labels": {},
    }
    reaper = Reaper([as_provider(fake)])
    report = await reaper.reap()
    assert [found.sandbox_id for found in report.released] == ["dead"]
    report = await reaper.reap(unknown=True)
    assert [found.sandbox_id for found in report.released] == ["other host"]
    assert set(fake.boxes) == {"alive", "other user", "no labels"}
    report = await reaper.reap(everything_of="run")
    assert set(fake.boxes) == {"other user", "no labels"}


async def test_a_lease_without_a_sandbox_is_settled_only_after_a_while(
    fake: FakeProvider, folder: LeaseFolder, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await start(fake, leases)
    fake.boxes.clear()
    _make_dead(folder, box.sandbox_id)
    reaper = Reaper([as_provider(fake)], [folder])
    assert (await reaper.reap()).pending == 1
    assert owed(folder) == [box.sandbox_id]
    later = time.time() + module.SETTLE_SECONDS + 1
    monkeypatch.setattr(module.time, "time", lambda: later)
    assert (await reaper.reap()).pending == 0
    assert owed(folder) == []


async def test_a_lease_of_a_live_owner_is_left_alone(fake: FakeProvider, folder: LeaseFolder, leases: Leases) -> None:
    box = await start(fake, leases)
    report = await Reaper([as_provider(fake)], [folder]).reap()
    assert (report.released, report.pending) == ([], 0)
    assert list(fake.boxes) == owed(folder) == [box.sandbox_id]


@pytest.mark.parametrize("broken", ["find", "close"])
async def test_a_provider_that_does_not_answer_is_told_and_asked_again(
    fake: FakeProvider, folder: LeaseFolder, leases: Leases, broken: str
) -> None:
    box = await start(fake, leases)
    _make_dead(folder, box.sandbox_id)
    fake.boxes[box.sandbox_id] |= DEAD
    reaper = Reaper([as_provider(fake)], [folder])
    fake.broken = {broken}
    report = await reaper.reap()
    assert (report.pending, report.problems) == (1, [f"{broken} does not answer"])
    assert owed(folder) == [box.sandbox_id]
    fake.broken = set()
    report = await reaper.reap()
    assert ([found.sandbox_id for found in report.released], report.problems) == ([box.sandbox_id], [])
    assert owed(folder) == []


async def test_a_lease_is_not_settled_by_another_engine(fake: FakeProvider, folder: LeaseFolder, leases: Leases) -> None:
    """There it is not found either, which says nothing."""
    box = await start(fake, leases)
    _make_dead(folder, box.sandbox_id)
    report = await Reaper([as_provider(FakeProvider("fake elsewhere"))], [folder]).reap()
    assert report.pending == 1
    assert "no provider of this configuration" in report.problems[0]
    assert owed(folder) == [box.sandbox_id]


async def test_the_owner_takes_note_of_what_the_reaper_noted(fake: FakeProvider, folder: LeaseFolder, leases: Leases) -> None:
    box = await start(fake, leases)
    fake.broken = {"close"}
    with pytest.raises(SandboxError):
        await box.stop()
    fake.broken = set()
    report = await Reaper([as_provider(fake)], [folder]).reap()
    assert [found.given_up for found in report.released] == [True]
    leases.book.close()
    assert not folder.book_path("box").exists()


def test_heartbeat_and_blocks_are_read_back(folder: LeaseFolder) -> None:
    folder.path.parent.mkdir()
    assert (folder.heartbeat(), folder.providers()) == (None, {})
    folder.beat()
    blocks: Mapping[str, Mapping[str, Any]] = {"sandbox": {"docker": {"host": "unix:///x"}}}
    folder.write_providers(blocks)
    beat = folder.heartbeat()
    assert beat is not None
    assert abs(beat.at - time.time()) < 5
    assert folder.providers() == blocks
    (folder.path / "heartbeat.json").write_text("{")
    assert folder.heartbeat() is None


def _make_dead(folder: LeaseFolder, sandbox_id: str) -> None:
    """Let the lease be one of a process that has ended."""
    path = folder.book_path("box")
    (lease,) = folder.owed()[path]
    path.write_text(path.read_text().replace(f'"{OWNER_PID}":"{lease.labels[OWNER_PID]}"', f'"{OWNER_PID}":"{DEAD[OWNER_PID]}"'))


def test_turns_come_at_their_rate_after_a_burst() -> None:
    now = [0.0]
    pace = Pace(10, 3, 0, clock=lambda: now[0])
    assert [round(pace.delay(), 3) for _ in range(6)] == [0, 0, 0, 0.1, 0.2, 0.3]
    now[0] = 100
    assert [round(pace.delay(), 3) for _ in range(4)] == [0, 0, 0, 0.1]


def test_jitter_varies_the_gaps_and_keeps_the_rate() -> None:
    pace = Pace(100, 1, 0.5, clock=lambda: 0.0)
    delays = [pace.delay() for _ in range(1000)]
    gaps = {round(after - before, 4) for before, after in pairwise(delays)}
    assert len(gaps) > 20
    assert min(gaps) >= 0.005
    assert max(gaps) <= 0.015
    assert 9 < delays[-1] < 11


class FakeNetworks:
    """Networks that containers of a fake provider are in."""

    def __init__(self, fake: FakeProvider) -> None:
        self.there: dict[str, dict[str, str]] = {}
        self._fake = fake

    async def find(self, *, run_id: str | None = None) -> list[SandboxRecord]:
        return [SandboxRecord(name, SandboxStatus.RUNNING, labels) for name, labels in self.there.items()]

    async def remove(self, network_id: str) -> bool:
        if self._fake.boxes:
            return False
        self.there.pop(network_id, None)
        return True


@pytest.fixture
def networks(fake: FakeProvider) -> FakeNetworks:
    fake.networks = FakeNetworks(fake)
    return fake.networks


async def test_a_network_goes_after_the_sandboxes_in_it(fake: FakeProvider, networks: FakeNetworks) -> None:
    fake.boxes["box"] = OWNER.labels(60, {}) | DEAD
    networks.there["net"] = Ownership("run", "", NETWORK).labels(60, {}) | DEAD
    report = await Reaper([as_provider(fake)]).reap()
    assert [(found.sandbox_id, found.is_network) for found in report.released] == [("box", False), ("net", True)]
    assert (fake.boxes, networks.there, report.pending) == ({}, {}, 0)


async def test_a_network_in_use_stays_and_nothing_is_wrong(
    fake: FakeProvider, networks: FakeNetworks, folder: LeaseFolder, leases: Leases
) -> None:
    """Its run was killed, and a server of it is still releasing what it holds."""
    owner = Ownership("run", "", NETWORK)
    leases.take("net", fake.place, owner)
    networks.there["net"] = owner.labels(60, {}) | DEAD
    fake.boxes["box"] = OWNER.labels(60, {})
    reaper = Reaper([as_provider(fake)], [folder])
    report = await reaper.reap()
    assert (report.released, report.problems, report.pending, list(networks.there)) == ([], [], 1, ["net"])
    fake.boxes.clear()
    report = await reaper.reap()
    assert ([found.sandbox_id for found in report.released], report.pending, owed(folder)) == (["net"], 0, [])


async def test_the_network_of_a_live_run_is_left_alone_but_at_its_end(fake: FakeProvider, networks: FakeNetworks) -> None:
    networks.there["net"] = Ownership("run", "", NETWORK).labels(-10_000, {})
    reaper = Reaper([as_provider(fake)])
    assert (await reaper.reap()).released == []
    await reaper.reap("run", everything_of="run")
    assert networks.there == {}
