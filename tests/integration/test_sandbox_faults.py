"""Nothing is left of a run, whatever of it is killed and when: `gym` on a real Docker engine, and the calc task.

The engine's socket is behind a proxy of ours, which stops an episode exactly where a fault is wanted.
With GYM_WRITE_DOCS=1 what was left after each fault goes into the table of docs/sandbox-leaks.md.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.conftest import REPOSITORY, GymRuns, Started, wait_for
from tests.integration.docker_proxy import DockerProxy, Rule, docker_proxy

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LEAKS = REPOSITORY / "docs" / "sandbox-leaks.md"
BOUND_SECONDS = 60.0

CONFIG = """
config_paths:
- responses_api_agents/oracle_agent/configs/oracle_agent.yaml
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
sandbox:
  docker:
    host: {host}
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
    oracle_agent: {{sleep_seconds: {sleep}}}
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

MOMENTS: dict[str, Rule | None] = {
    "during create": Rule(r"POST \S+/containers/create", "hold_reply"),
    "after create": Rule(r"POST \S+/containers/\S+/start", "hold_reply"),
    "agent working": None,
    "verifying": Rule(r"POST \S+/containers/\S+/exec", "hold"),
    "closing": Rule(r"DELETE \S+/containers/", "hold"),
}


class Faults:
    """Runs of the calc task, and what is left of them."""

    def __init__(self, runs: GymRuns, proxy: DockerProxy, row: dict[str, Any]) -> None:
        self.runs, self.proxy = runs, proxy
        self.rows = runs.rows({"responses_create_params": {"input": "go"}, **row})
        self.config = runs.config
        self.configure()

    def configure(self, sleep: float = 0) -> None:
        self.config.write_text(CONFIG.format(host=self.proxy.host, tag=self.runs.tag, sleep=sleep))

    def boxes(self) -> list[str]:
        """The containers of this test."""
        wanted = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.meta.test={self.runs.tag}"]
        return subprocess.run(wanted, text=True, capture_output=True, check=True, timeout=30).stdout.split()

    def until(self, moment: str) -> Callable[[], bool]:
        """Set the proxy up to stop at `moment`; the answer says whether it is reached."""
        rule = MOMENTS[moment]
        if rule is None:
            self.configure(sleep=61)
            return self._agent_sleeps
        fresh = Rule(rule.pattern, rule.what)
        if moment == "verifying":
            # The execs of the first sandbox must pass: the rule comes into force with the second create.
            second = self.proxy.rule(Rule(r"POST \S+/containers/create", "hold_reply", nth=99))
            create = MOMENTS["during create"]
            assert create is not None

            def reached() -> bool:
                if second.seen == 2 and fresh not in self.proxy.rules:
                    self.proxy.rule(fresh)
                return fresh.reached.is_set()

            return reached
        self.proxy.rule(fresh)
        return fresh.reached.is_set

    def _agent_sleeps(self) -> bool:
        return any(
            "sleep 61" in subprocess.run(["docker", "top", box], text=True, capture_output=True, check=False).stdout for box in self.boxes()
        )

    def eval(self, *arguments: str) -> Started:
        return self.runs.eval(self.rows, "--attempts", "1", "--overwrite", *arguments)

    def server(self, name: str) -> int:
        """The pid of a server's process."""
        for pid in self.runs.processes():
            if psutil.Process(pid).cmdline()[:1] == [f"gym server {name}"]:
                return pid
        raise AssertionError(f"server {name} has no process of its own")

    def left(self) -> dict[str, int]:
        """What there is of the test's runs just now."""
        return {"containers": len(self.boxes()), "processes": len(self.runs.processes()), "folders": len(self.runs.run_folders())}

    def nothing_left(self, seconds: float = BOUND_SECONDS) -> float:
        """Wait until nothing is left; how long that took."""
        began = time.monotonic()
        wait_for(lambda: not any(self.left().values()), lambda: f"left over: {self.left()} {self.runs.run_folders()}", seconds)
        return time.monotonic() - began


@pytest.fixture
def faults(docker_engine: None, runs: GymRuns, calc_row: dict[str, Any]) -> Iterator[Faults]:
    with tempfile.TemporaryDirectory(prefix="gym-proxy-") as folder, docker_proxy(Path(folder) / "docker.sock") as proxy:
        made = Faults(runs, proxy, calc_row)
        yield made
        runs.end()
        left = made.boxes()
        if left:
            subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False, timeout=60)
        assert not left, f"{len(left)} containers of the test are left over"


def note(fault: str, command: str, moment: str, freed_by: str, left: dict[str, int], seconds: float) -> None:
    """Put a line into the table of the documentation, where that is asked for."""
    if os.environ.get("GYM_WRITE_DOCS") != "1":
        return
    counts = " | ".join(str(left[name]) for name in ("containers", "processes", "folders"))
    line = f"| {fault} | `{command}` | {moment} | {counts} | {freed_by} | {seconds:.0f} s |"
    with (LEAKS.parent / ".sandbox-leaks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = LEAKS.read_text()
        head, rows = text.split("|---|---|---|---|---|---|---|---|\n")
        key = "|".join(line.split("|")[:4])
        kept = [row for row in rows.splitlines() if row and not row.startswith(key)]
        LEAKS.write_text(f"{head}|---|---|---|---|---|---|---|---|\n" + "\n".join(sorted([*kept, line])) + "\n")
        Path(lock.name).unlink()


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        *(("resources server", moment) for moment in MOMENTS),
        *(("environment server", moment) for moment in ("during create", "agent working", "verifying")),
    ],
)
def test_a_server_is_killed(faults: Faults, victim: str, moment: str) -> None:
    """The evaluation goes on, fails the attempt, and ends; nothing is left when it has."""
    reached = faults.until(moment)
    started = faults.eval("isolation=process")
    wait_for(reached, lambda: f"{moment}: {started.errors}", 40)
    pid = faults.server("box" if victim == "resources server" else "env")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    faults.proxy.let_go()
    if victim == "resources server" and moment == "agent working":
        wait_for(lambda: not faults.boxes(), "the restarted server removes what its predecessor left", BOUND_SECONDS)
    started.ended(BOUND_SECONDS)
    assert "Traceback" not in started.errors, started.errors
    faults.nothing_left()
    note(f"{victim} killed", "gym eval run", moment, "the run", faults.left(), time.monotonic() - began)


@pytest.mark.parametrize("moment", ["during create", "agent working", "verifying"])
def test_the_parent_is_killed(faults: Faults, moment: str) -> None:
    """Its servers are told by the kernel, release what they hold, and the last one clears the folder."""
    reached = faults.until(moment)
    started = faults.eval("isolation=process")
    wait_for(reached, lambda: f"{moment}: {started.errors}", 40)
    began = time.monotonic()
    started.process.kill()
    faults.proxy.let_go()
    faults.nothing_left()
    note("parent killed", "gym eval run", moment, "its servers", faults.left(), time.monotonic() - began)


def test_the_parent_of_servers_is_killed(faults: Faults) -> None:
    reached = faults.until("agent working")
    servers = faults.runs.start(config=faults.config)
    servers.ready()
    faults.runs.eval(faults.rows, "--attempts", "1", serve=False)
    wait_for(reached, "the agent works", 40)
    began = time.monotonic()
    servers.process.kill()
    faults.nothing_left()
    note("parent killed", "gym env start", "agent working", "its servers", faults.left(), time.monotonic() - began)


@pytest.mark.parametrize(
    ("isolation", "moment"),
    [
        ("process", "during create"),
        ("process", "agent working"),
        ("colocated", "after create"),
        ("colocated", "verifying"),
        ("colocated", "closing"),
    ],
)
def test_everything_is_killed_at_once(faults: Faults, moment: str, isolation: str) -> None:
    """Nobody is there to release anything: `gym sandbox reap` does, or the next start."""
    reached = faults.until(moment)
    started = faults.eval(f"isolation={isolation}")
    wait_for(reached, lambda: f"{moment}: {started.errors}", 40)
    began = time.monotonic()
    for pid in faults.runs.processes():
        os.kill(pid, signal.SIGKILL)
    started.process.wait()
    assert len(faults.boxes()) == 1
    listed = json.loads(faults.runs.run("sandbox", "ls", "--json", "--config", faults.config)[1])
    ours = [box for box in listed if box["metadata"].get("test") == faults.runs.tag]
    assert [(box["owner_state"], box["instance"]) for box in ours] == [("orphaned", "box")]
    assert ours[0]["episode"]
    by = "gym sandbox reap" if isolation == "process" else "the next start"
    if isolation == "process":
        code, out, errors = faults.runs.run("sandbox", "reap", "--config", faults.config)
        assert (code, ours[0]["sandbox_id"] in out) == (0, True), errors
        assert faults.runs.run("sandbox", "reap", "--config", faults.config)[1] == ""
    else:
        again = faults.runs.start(config=faults.config)
        again.ready()
        wait_for(lambda: not faults.boxes(), "the next run releases it", BOUND_SECONDS)
        wait_for(lambda: "1 sandbox(es) whose owners are gone" in again.errors, "it says so")
        again.signal()
        again.ended()
    faults.nothing_left()
    note(f"everything killed ({isolation})", "gym eval run", moment, by, faults.left(), time.monotonic() - began)


@pytest.mark.parametrize("what", ["lose", "late"])
def test_the_reply_to_a_create_is_lost(faults: Faults, what: Any) -> None:
    """The engine made the sandbox, or makes it later, and we were not told: it is removed all the same, and another one used."""
    faults.proxy.rule(Rule(r"POST \S+/containers/create", what, seconds=4))
    began = time.monotonic()
    started = faults.runs.eval(faults.rows, "--attempts", "2")
    assert started.ended(BOUND_SECONDS) == 0, started.errors
    (row,) = faults.runs.lines("out.jsonl")
    assert row["reward"] == 1.0
    faults.nothing_left()
    moment = "during create" if what == "lose" else "4 s before the engine gets the create"
    note("create reply lost", "gym eval run", moment, "the run", faults.left(), time.monotonic() - began)


def test_the_journal_cannot_be_written(faults: Faults) -> None:
    """A full disk is an error before anything is asked for."""
    started = faults.runs.begin("env", "start", "--json", "--config", faults.config)
    ready = started.ready()
    leases = faults.runs.state / "runs" / ready["run_id"] / "leases"
    (leases / "box.jsonl").mkdir()  # stands for a disk that takes nothing more
    evaluation = faults.runs.eval(faults.rows, "--attempts", "1", serve=False)
    assert evaluation.ended(40) == 76, evaluation.errors
    (failed,) = faults.runs.lines("out_failures.jsonl")
    assert "the lease journal cannot be written" in json.dumps(failed)
    assert not [line for line in faults.proxy.requests if re.search("containers/create", line)]
    (leases / "box.jsonl").rmdir()
    started.signal()
    started.ended()
    faults.nothing_left()
