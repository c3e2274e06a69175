"""Several Docker engines behind one block, and an engine that dies or is started anew under what runs on it.

One of them is a private engine of these tests, which is killed with all that belongs to it; the other is the
usual one, seen through a proxy that keeps other reapers out.
"""

import asyncio
import json
import logging
import subprocess
import tempfile
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
from tests.integration.docker_proxy import DockerProxy, docker_proxy
from tests.integration.private_docker import PrivateDocker

pytestmark = [pytest.mark.docker, pytest.mark.slow]

IMAGE = "gym-test/calc:latest"
BOUND_SECONDS = 60.0

CONFIG = """
config_paths:
- responses_api_agents/oracle_agent/configs/oracle_agent.yaml
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
sandbox:
  docker:
    hosts: {hosts}
    create: {{network: none, pull: never}}
box:
  resources_servers:
    calc_swe:
      entrypoint: app.py
      allowed_agents: [oracle_agent]
      expose_gold_to: [oracle_agent]
      sandbox_config: {{ttl_s: 600, metadata: {{test: "{tag}"}}}}
agent:
  _inherit_from: oracle_agent
  responses_api_agents:
    oracle_agent: {{sleep_seconds: 4}}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 20
      default_episode_timeout_seconds: 300
"""


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
def usual() -> Iterator[DockerProxy]:
    """The usual engine, behind a proxy."""
    with tempfile.TemporaryDirectory(prefix="gym-proxy-") as folder, docker_proxy(Path(folder) / "docker.sock") as proxy:
        yield proxy


async def test_sandboxes_are_spread_and_known_by_their_engine(
    docker_run_id: str, private: PrivateDocker, usual: DockerProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create = {"network": "none", "pull": "never"}
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


class Runs:
    """Evaluations of the calc task on these engines."""

    def __init__(self, runs: GymRuns, row: dict[str, Any], hosts: list[str], episodes: int) -> None:
        self.runs = runs
        self.episodes = episodes
        self.rows = runs.rows({"responses_create_params": {"input": "go"}, **row})
        runs.config.write_text(CONFIG.format(hosts=json.dumps(hosts), tag=runs.tag))

    def eval(self) -> Started:
        number = str(self.episodes)
        return self.runs.eval(self.rows, "--attempts", "4", "--num-repeats", number, "--concurrency", number)

    def all_measured(self) -> None:
        """Every episode has its reward, and none was invented meanwhile."""
        assert [row["reward"] for row in self.runs.lines("out.jsonl")] == [1.0] * self.episodes
        failures = self.runs.lines("out_failures.jsonl")
        assert failures, "the engine was killed under somebody"
        assert all("reward" not in failure for failure in failures)
        kinds = {failure["_ng_failure_kind"] for failure in failures}
        assert kinds <= {"session_lost", "provider_unavailable", "session_release_failed"}, failures

    def settled(self, *engines: PrivateDocker) -> None:
        """Nothing is left of it, anywhere."""
        usual = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.meta.test={self.runs.tag}"]

        def left() -> dict[str, int]:
            return {
                "containers": len(subprocess.run(usual, text=True, capture_output=True, check=True).stdout.split()),
                "in the private engine": sum(len(engine.containers()) for engine in engines),
                "processes": len(self.runs.processes()),
                "folders": len(self.runs.run_folders()),
            }

        wait_for(lambda: not any(left().values()), lambda: f"left over: {left()} {self.runs.run_folders()}", BOUND_SECONDS)


def working(*commands: list[str]) -> int:
    """How many agents are at work in containers, by these `docker` commands."""
    found = 0
    for docker in commands:
        for box in subprocess.run([*docker, "ps", "-q"], text=True, capture_output=True, check=True).stdout.split():
            found += "sleep 4" in subprocess.run([*docker, "top", box], text=True, capture_output=True, check=False).stdout
    return found


def test_episodes_of_an_engine_that_dies_are_tried_again_on_the_other(
    runs: GymRuns, calc_row: dict[str, Any], private: PrivateDocker, usual: DockerProxy
) -> None:
    task = Runs(runs, calc_row, [private.host, usual.host], 4)
    started = task.eval()
    wait_for(lambda: working(["docker", "-H", private.host]) >= 2, lambda: f"agents work: {started.errors}", 60)
    private.kill()
    assert started.ended(120) == 0, started.errors
    task.all_measured()
    assert "passed over" in started.errors
    owed = json.loads(runs.run("sandbox", "ls", "--json", "--config", runs.config)[1])
    assert {one["place"].split()[1] for one in owed} == {private.host}, "what the dead engine has is still owed"
    private.start()
    code, _, errors = runs.run("sandbox", "reap", "--config", runs.config)
    assert code == 0, errors
    task.settled(private)


def test_an_engine_is_started_anew_during_a_run(runs: GymRuns, calc_row: dict[str, Any], private: PrivateDocker) -> None:
    task = Runs(runs, calc_row, [private.host], 2)
    started = task.eval()
    wait_for(lambda: working(["docker", "-H", private.host]) == 2, lambda: f"agents work: {started.errors}", 60)
    private.kill()
    time.sleep(1)  # for calls to fail before it is back
    private.start()
    assert started.ended(120) == 0, started.errors
    task.all_measured()
    task.settled(private)
