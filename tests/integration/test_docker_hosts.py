"""Several Docker engines behind one block, and an engine that dies or is started anew under what runs on it.

One of them is a private engine of these tests, which is killed with all that belongs to it; the other is the
usual one, seen through a proxy that keeps other reapers out.
"""

import asyncio
import json
import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import unavailable
from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.leases import LeaseBook, LeaseFolder
from gym.sandbox.ownership import Ownership
from gym.sandbox.reaper import Reaper
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxSpec
from tests.integration.conftest import GymRuns, Started, wait_for
from tests.integration.fault_runs import Faults, faults_of
from tests.integration.private_docker import PrivateDocker

pytestmark = [pytest.mark.docker, pytest.mark.slow]

IMAGE = "gym-test/calc:latest"


@pytest.fixture(scope="module")
def made_private(docker_engine: None) -> Iterator[PrivateDocker]:
    """The private engine, with the image."""
    if why := PrivateDocker.why_not():
        unavailable(why)
    private = PrivateDocker()
    try:
        private.start()
        private.load(IMAGE)
        yield private
    finally:
        private.remove()
    assert not private.processes()
    assert str(private.folder) not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def private(made_private: PrivateDocker) -> Iterator[PrivateDocker]:
    """The private engine, running; no container may be left in it."""
    yield made_private
    if not made_private.running:
        made_private.start()
    left = made_private.containers()
    if left:
        made_private.docker("rm", "-f", *left)
    assert not left, f"{len(left)} containers are left in the private engine"


@pytest.fixture
def faults(docker_engine: None, runs: GymRuns, calc_row: dict[str, Any]) -> Iterator[Faults]:
    """Runs; the usual engine is behind their proxy."""
    with faults_of(runs, calc_row) as made:
        yield made


async def test_sandboxes_are_spread_and_known_by_their_engine(
    docker_run_id: str, private: PrivateDocker, faults: Faults, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usual, create = faults.proxy, {"network": "none", "pull": "never"}
    block = {"docker": {"hosts": [private.host, {"host": usual.host, "weight": 2}], "create": create}}
    provider, elsewhere = provider_from_block("s", block), provider_from_block("s", block)
    (tmp_path / "run").mkdir()
    folder = LeaseFolder(tmp_path / "run")
    book = LeaseBook(folder.book_path("box"))
    owner = Ownership(docker_run_id, "box")

    async def start() -> OwnedSandbox:
        return await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE, ttl_s=600), owner, leases=book.at("s"))

    def engine_of(box: OwnedSandbox) -> str:
        return str(box.serialize("s").connection.descriptor["engine"])

    boxes = [await start() for _ in range(6)]
    by_engine = {host: [box for box in boxes if engine_of(box) == host] for host in (private.host, usual.host)}
    assert {host: len(found) for host, found in by_engine.items()} == {private.host: 2, usual.host: 4}
    assert len(private.containers()) == 2
    assert {record.sandbox_id for record in await elsewhere.find(run_id=docker_run_id)} == {box.sandbox_id for box in boxes}
    for box in boxes:
        async with await BorrowedSandbox.connect(box.serialize("s"), {"s": elsewhere}) as borrowed:
            await borrowed.upload("/tmp/note", b"to the right one")
        assert await box.download("/tmp/note") == b"to the right one"
    lost, kept = by_engine[private.host]
    strangers = provider_from_block("s", {"docker": {"hosts": [usual.host]}})
    with pytest.raises(SandboxError, match="not among this block's hosts"):
        await BorrowedSandbox.connect(lost.serialize("s"), {"s": strangers})

    working = asyncio.create_task(lost.exec("sleep 600"))
    await asyncio.sleep(0.3)
    private.kill()
    with caplog.at_level(logging.WARNING):
        more = [await start() for _ in range(4)]
    assert {engine_of(box) for box in more} == {usual.host}
    assert [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()] == [
        f"the Docker engine at {private.host} does not answer, and is passed over until it does"
    ]
    assert (await working).error_type == "sandbox"
    for box in (lost, kept):
        with pytest.raises(SandboxError) as failed:
            await box.stop()
        assert failed.value.kind == "session_release_failed"
    for box in more + by_engine[usual.host]:
        await box.stop()

    reaper = Reaper([provider_from_block("s", block)], [folder])
    report = await reaper.reap()
    assert report.pending == 2
    assert any(private.host in problem for problem in report.problems)
    assert {lease.sandbox_id for leases in folder.owed().values() for lease in leases} == {lost.sandbox_id, kept.sandbox_id}
    private.start()
    report = await reaper.reap()
    if report.pending:  # an engine that comes back removes by itself what it kept; a create that is late is waited for
        await asyncio.sleep(10.5)
        report = await reaper.reap()
    assert (report.pending, report.problems, folder.owed()) == (0, [], {})
    assert private.containers() == []
    book.close()
    for one in (provider, elsewhere, strangers, reaper):
        await one.aclose()


def all_measured(faults: Faults, episodes: int) -> None:
    """Every episode has its reward, and none was invented meanwhile."""
    assert [row["reward"] for row in faults.runs.lines("out.jsonl")] == [1.0] * episodes
    failures = faults.runs.lines("out_failures.jsonl")
    assert failures, "the engine was killed under somebody"
    assert all("reward" not in failure for failure in failures)
    kinds = {failure["_ng_failure_kind"] for failure in failures}
    assert kinds <= {"session_lost", "provider_unavailable", "session_release_failed"}, failures


def begun(faults: Faults, private: PrivateDocker, hosts: list[str], episodes: int, at_work: int) -> Started:
    """An evaluation, once so many of its agents are at work in the private engine."""
    faults.engines = [private]
    faults.configure(sleep=4, docker={"host": None, "hosts": hosts, "create": {"network": "none", "pull": "never"}})
    started = faults.eval("--num-repeats", str(episodes), "--concurrency", str(episodes), attempts=4)
    wait_for(lambda: working(["docker", "-H", private.host]) >= at_work, lambda: f"agents work: {started.errors}", 60)
    return started


def working(*commands: list[str]) -> int:
    """How many agents are at work in containers, by these `docker` commands."""
    found = 0
    for docker in commands:
        for box in subprocess.run([*docker, "ps", "-q"], text=True, capture_output=True, check=True).stdout.split():
            found += "sleep 4" in subprocess.run([*docker, "top", box], text=True, capture_output=True, check=False).stdout
    return found


def test_episodes_of_an_engine_that_dies_are_tried_again_on_the_other(faults: Faults, private: PrivateDocker) -> None:
    started = begun(faults, private, [private.host, faults.proxy.host], 4, 2)
    private.kill()
    assert started.ended(120) == 0, started.errors
    all_measured(faults, 4)
    assert "passed over" in started.errors
    owed = json.loads(faults.runs.run("sandbox", "ls", "--json", "--config", faults.config)[1])
    assert {one["place"].split()[1] for one in owed} == {private.host}, "what the dead engine has is still owed"
    began = time.monotonic()
    private.start()
    code, _, errors = faults.runs.run("sandbox", "reap", "--config", faults.config)
    assert code == 0, errors
    faults.nothing_left("one of two engines killed", "gym eval run", "agent working", "gym sandbox reap, once it is back", began)


def test_an_engine_is_started_anew_during_a_run(faults: Faults, private: PrivateDocker) -> None:
    started = begun(faults, private, [private.host], 2, 2)
    began = time.monotonic()
    private.kill()
    time.sleep(1)  # for calls to fail before it is back
    private.start()
    assert started.ended(120) == 0, started.errors
    all_measured(faults, 2)
    faults.nothing_left("engine killed and started anew", "gym eval run", "agent working", "the run", began)
