"""SWE-bench tasks through `gym`, as a user runs them: gold resolves, doing nothing does not, and nothing is left."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.swe.dressed import published
from tests.integration.swe.gym_runs import Gym, boxes, check_gold_and_nothing, read, skip_without_environment

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CONFIG = "resources_servers/swebench/configs/swebench_oracle.yaml"
ORACLE = "swebench_oracle_environment_server"


@pytest.fixture
def gym(docker_engine: None, tmp_path: Path) -> Gym:
    return Gym(tmp_path)


def test_a_real_task(gym: Gym) -> None:
    """A row of SWE-bench Verified as it is published, on a local image that the overlay names."""
    row = published("pylint-dev__pylint-4551")
    del row["image"]
    template = 'resources_servers: {swebench: {image_template: "gym-swe/{instance_id_s}:latest"}}'
    config = gym.overlay(
        f"config_paths: [{CONFIG}]\nswebench_oracle_resources_server:\n  {template}\nswebench_noop_resources_server:\n  {template}\n"
    )
    (gold,), solving, idling = check_gold_and_nothing(gym, config, "swebench", "--input", gym.rows(row))
    assert len(json.loads(row["FAIL_TO_PASS"])) == 10
    assert gold["failed_required_tests"] == []
    one_after_the_other = ["create task", "destroy task", "create verifier", "destroy verifier"]
    assert solving == idling == one_after_the_other


def kill_first_task_box(seconds: float = 60) -> str:
    """Kill the first task sandbox that is being worked in; its run id."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        command = ["docker", "ps", "-q", "--filter", "label=nemo-gym.role=task", "--filter", "label=nemo-gym.meta.test=kill"]
        for box in subprocess.run(command, text=True, capture_output=True, check=True).stdout.split():
            top = subprocess.run(["docker", "top", box], text=True, capture_output=True, check=False).stdout
            if "sleep 4" not in top:
                continue
            label = '{{index .Config.Labels "nemo-gym.run-id"}}'
            run_id = subprocess.run(["docker", "inspect", "-f", label, box], text=True, capture_output=True, check=True).stdout.strip()
            subprocess.run(["docker", "kill", box], capture_output=True, check=True)
            return run_id
        time.sleep(0.1)
    raise AssertionError("no task sandbox in which the agent sleeps was seen")


SLEEPY = f"""
config_paths: [{CONFIG}]
swebench_oracle_resources_server:
  resources_servers:
    swebench:
      sandbox_config:
        metadata: {{test: kill}}
swebench_oracle_agent:
  responses_api_agents:
    oracle_agent:
      sleep_seconds: 4
"""


def test_a_task_sandbox_that_is_killed_fails_the_attempt(gym: Gym) -> None:
    """With servers of their own process, whose logs tell what was called; then again with the attempts that are usual."""
    config, logs = gym.overlay(SLEEPY), gym.folder / "logs"
    servers = gym.start("env", "start", "--config", config, "--log-dir", str(logs), "--json")
    try:
        assert servers.stdout is not None
        if not servers.stdout.readline():
            assert servers.stderr is not None
            said = servers.stderr.read()
            skip_without_environment(said)
            raise AssertionError(said)
        source = ["--no-serve", "--dataset", "example", "--limit", "1", "--env", ORACLE]
        once = gym.start("eval", "run", *source, "--output", gym.output("once"), NEMO_GYM_MAX_ROLLOUT_ATTEMPTS="1")
        run_id = kill_first_task_box()
        _, err = once.communicate(timeout=60)
        assert once.returncode == 76, err
        assert "1 failed" in err
        assert read(gym.output("once")) == []
        (failed,) = read(gym.output("once_failures"))
        assert failed["_ng_failure_class"] == "environment_server_failed"
        assert failed["_ng_failure_stage"] == "agent"
        assert failed["_ng_failure_terminal"] is False
        assert "reward" not in failed
        assert boxes(run_id) == []
        log = (logs / "swebench_oracle_resources_server.log").read_text()
        assert "/seed_session" in log
        assert "/close_session" in log
        assert "/verify" not in log

        more = gym.start("eval", "run", *source, "--output", gym.output("more"))
        kill_first_task_box()
        _, err = more.communicate(timeout=90)
        assert more.returncode == 0, err
        (row,) = read(gym.output("more"))
        assert (row["reward"], row["_ng_attempt_index"]) == (1.0, 1)
        assert "/verify" in (logs / "swebench_oracle_resources_server.log").read_text()
        assert boxes(run_id) == []
    finally:
        servers.send_signal(signal.SIGINT)
        try:
            servers.communicate(timeout=60)
        finally:
            servers.kill()
    assert boxes(run_id) == []


@pytest.mark.parametrize("how", ["sigterm", "kill-server", "kill-launcher"])
def test_a_stopped_collection_leaves_no_sandbox(gym: Gym, how: str) -> None:
    """SIGTERM undoes everything in order; a killed server's sandboxes go with the run; servers outlive no launcher."""
    config = gym.overlay(SLEEPY.replace("test: kill", f"test: {how}").replace("sleep_seconds: 4", "sleep_seconds: 60"))
    run = gym.start("eval", "run", "--config", config, "--dataset", "example", "--limit", "1", "--env", ORACLE, "--output", gym.output())
    wanted = ["docker", "ps", "-q", "--filter", f"label=nemo-gym.meta.test={how}"]

    def running() -> list[str]:
        return subprocess.run(wanted, text=True, capture_output=True, check=True).stdout.split()

    try:
        deadline = time.monotonic() + 60
        while not (found := running()):
            assert time.monotonic() < deadline
            if run.poll() is not None:
                said = run.communicate()[1]
                skip_without_environment(said)
                raise AssertionError(said)
            time.sleep(0.1)
        if how == "kill-server":
            label = '{{index .Config.Labels "nemo-gym.owner-pid"}}'
            owner = subprocess.run(["docker", "inspect", "-f", label, found[0]], text=True, capture_output=True, check=True).stdout
            assert int(owner) != run.pid, "the server has a Python environment of its own, and so a process"
            os.kill(int(owner), signal.SIGKILL)
            time.sleep(0.5)
        if how == "kill-launcher":
            run.kill()
        else:
            run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=90)
        assert run.returncode in (130, 1, -signal.SIGKILL), err
    finally:
        run.kill()
    deadline = time.monotonic() + (20 if how == "kill-launcher" else 0)
    while running() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert running() == []
