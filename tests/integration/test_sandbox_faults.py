"""Nothing is left of a run, whatever of it is killed and when: `gym` on a real Docker engine, and the calc task.

The sandboxes are in the run's own network, which must go as well. The engine's socket is behind a proxy of ours,
which stops an episode exactly where a fault is wanted. What was left after each fault goes into docs/sandbox-leaks.md.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.conftest import GymRuns, Started, wait_for
from tests.integration.docker_proxy import Rule
from tests.integration.fault_runs import BOUND_SECONDS, Faults, faults_of

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SLEEP = 61
MOMENTS: dict[str, Rule | None] = {
    "during create": Rule(r"POST \S+/containers/create", "hold_reply"),
    "after create": Rule(r"POST \S+/containers/\S+/start", "hold_reply"),
    "agent working": None,
    "verifying": Rule(r"POST \S+/containers/\S+/exec", "hold"),
    "closing": Rule(r"DELETE \S+/containers/", "hold"),
}


@pytest.fixture
def faults(docker_engine: None, runs: GymRuns, calc_row: dict[str, Any]) -> Iterator[Faults]:
    with faults_of(runs, calc_row) as made:
        yield made


def until(faults: Faults, moment: str) -> Callable[[], bool]:
    """Set the proxy up to stop at `moment`; the answer says whether it is reached."""
    rule = MOMENTS[moment]
    if rule is None:
        faults.configure(sleep=SLEEP)
        return lambda: faults.agent_sleeps(SLEEP)
    fresh = Rule(rule.pattern, rule.what)
    if moment != "verifying":
        faults.proxy.rule(fresh)
        return fresh.reached.is_set
    # The execs of the first sandbox must pass: the rule comes into force with the second create.
    second = faults.proxy.rule(Rule(r"POST \S+/containers/create", "hold_reply", nth=99))

    def reached() -> bool:
        if second.seen == 2 and fresh not in faults.proxy.rules:
            faults.proxy.rule(fresh)
        return fresh.reached.is_set()

    return reached


def begun(faults: Faults, moment: str, isolation: str) -> Started:
    """An evaluation that has come to `moment`."""
    reached = until(faults, moment)
    started = faults.eval(f"isolation={isolation}")
    wait_for(reached, lambda: f"{moment}: {started.errors}", 60)
    return started


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", ["resources server", "environment server"])
def test_a_server_is_killed(faults: Faults, victim: str, moment: str) -> None:
    """The evaluation goes on, fails the attempt, and ends; nothing is left when it has."""
    started = begun(faults, moment, "process")
    pid = faults.runs.server("box" if victim == "resources server" else "env")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    faults.proxy.let_go()
    if victim == "resources server" and moment == "agent working":
        wait_for(lambda: not faults.boxes(), "the restarted server removes what its predecessor left", BOUND_SECONDS)
    started.ended(BOUND_SECONDS)
    assert "Traceback" not in started.errors, started.errors
    faults.nothing_left(f"{victim} killed", "gym eval run", moment, "the run", began)
    zeros = [row for row in faults.runs.lines("out.jsonl") if row["reward"] == 0.0 and not row["mask_sample"]]
    assert not zeros, "a fault of ours is no zero"


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_parent_is_killed(faults: Faults, moment: str) -> None:
    """Its servers are told by the kernel, release what they hold, and the last one clears the folder."""
    started = begun(faults, moment, "process")
    began = time.monotonic()
    started.process.kill()
    faults.proxy.let_go()
    faults.nothing_left("parent killed", "gym eval run", moment, "its servers", began)


def test_the_parent_of_servers_is_killed(faults: Faults) -> None:
    reached = until(faults, "agent working")
    servers = faults.runs.start(config=faults.config)
    servers.ready()
    rows = faults.runs.rows({"responses_create_params": {"input": "go"}, **faults.row})
    faults.runs.eval(rows, "--attempts", "1", serve=False)
    wait_for(reached, "the agent works", 60)
    began = time.monotonic()
    servers.process.kill()
    faults.nothing_left("parent killed", "gym env start", "agent working", "its servers", began)


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
    started = begun(faults, moment, isolation)
    began = time.monotonic()
    for pid in faults.runs.processes():
        os.kill(pid, signal.SIGKILL)
    started.process.wait()
    assert len(faults.boxes()) == 1
    assert faults.left()["networks"] == 1
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
        wait_for(lambda: "1 sandbox(es)" in again.errors, "it says so")
        again.signal()
        again.ended()
    faults.nothing_left(f"everything killed ({isolation})", "gym eval run", moment, by, began)


@pytest.mark.parametrize("what", ["lose", "late"])
def test_the_reply_to_a_create_is_lost(faults: Faults, what: Any) -> None:
    """The engine made the sandbox, or makes it later, and we were not told: it is removed all the same, and another one used."""
    faults.proxy.rule(Rule(r"POST \S+/containers/create", what, seconds=4))
    began = time.monotonic()
    started = faults.eval(attempts=2)
    assert started.ended(BOUND_SECONDS) == 0, started.errors
    (row,) = faults.runs.lines("out.jsonl")
    assert row["reward"] == 1.0
    moment = "during create" if what == "lose" else "4 s before the engine gets the create"
    faults.nothing_left("create reply lost", "gym eval run", moment, "the run", began)


def test_the_journal_cannot_be_written(faults: Faults) -> None:
    """A full disk is an error before anything is asked for."""
    started = faults.runs.begin("env", "start", "--json", "--config", faults.config)
    ready = started.ready()
    leases = faults.runs.state / "runs" / ready["run_id"] / "leases"
    (leases / "box.jsonl").mkdir()  # stands for a disk that takes nothing more
    rows = faults.runs.rows({"responses_create_params": {"input": "go"}, **faults.row})
    evaluation = faults.runs.eval(rows, "--attempts", "1", serve=False)
    assert evaluation.ended(40) == 76, evaluation.errors
    (failed,) = faults.runs.lines("out_failures.jsonl")
    assert "the lease journal cannot be written" in json.dumps(failed)
    assert not [line for line in faults.proxy.requests if re.search("containers/create", line)]
    (leases / "box.jsonl").rmdir()
    began = time.monotonic()
    started.signal()
    started.ended()
    faults.nothing_left("lease journal cannot be written", "gym env start", "before create", "nothing was made", began)
