"""SWE-bench tasks through `gym`, as a user runs them: gold resolves, doing nothing does not, and nothing is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("GYM_SHARED") or REPOSITORY.parent / "shared")
CONFIG = "resources_servers/swebench/configs/swebench_oracle.yaml"
ORACLE, NOOP = "swebench_oracle_environment_server", "swebench_noop_environment_server"
GYM = [sys.executable, "-c", "from gym.cli.main import main; main()"]


def skip_without_environment(said: str) -> None:
    if "cannot build the Python environment" in said:
        pytest.skip(f"the swebench server's environment cannot be built here: {said[-300:]}")


class Gym:
    """The command line, in a state folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "GYM_STATE_DIR": str(folder / "state"), "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": ""}
        del self.environ["NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"]

    def start(self, *args: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*GYM, *args], cwd=REPOSITORY, env=self.environ | environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *args: str, code: int = 0, **environ: str) -> str:
        """Run a command to its end; its stderr."""
        process = self.start(*args, **environ)
        try:
            out, err = process.communicate(timeout=200)
        finally:
            process.kill()
        skip_without_environment(err)
        assert process.returncode == code, out + err
        return err

    def overlay(self, text: str) -> str:
        path = self.folder / "overlay.yaml"
        path.write_text(text)
        return str(path)

    def rows(self, *rows: dict[str, Any]) -> str:
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def output(self, name: str = "out") -> str:
        return str(self.folder / f"{name}.jsonl")


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def boxes(run_id: str) -> list[str]:
    command = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.run-id={run_id}"]
    return subprocess.run(command, text=True, capture_output=True, check=True, timeout=30).stdout.split()


@contextmanager
def watched() -> Iterator[list[tuple[str, str, str]]]:
    """Every start and end of a sandbox while the context lasts: (run id, role, create or destroy); filled in at its end.

    Listened to as they happen: the engine remembers only its last few hundred, and other tests run beside this one.
    """
    events: list[tuple[str, str, str]] = []
    command = ["docker", "events", "--since", f"{time.time() - 0.5:.3f}", "--format", "{{json .}}"]
    command += ["--filter", "label=nemo-gym.sandbox=1", "--filter", "event=create", "--filter", "event=destroy"]
    with tempfile.TemporaryFile("w+") as heard:
        listener = subprocess.Popen(command, stdout=heard)
        try:
            yield events
            time.sleep(1)
        finally:
            listener.kill()
            listener.wait()
        heard.seek(0)
        lines = heard.read().splitlines()
    for line in lines:
        event = json.loads(line)
        labels = event["Actor"]["Attributes"]
        events.append((labels["nemo-gym.run-id"], labels["nemo-gym.role"], event["Action"]))


def of_run(events: list[tuple[str, str, str]], run_id: str) -> list[str]:
    return [f"{action} {role}" for run, role, action in events if run == run_id]


@pytest.fixture
def gym(docker_engine: None, tmp_path: Path) -> Gym:
    return Gym(tmp_path)


def check_gold_and_nothing(gym: Gym, config: str, *source: str) -> dict[str, Any]:
    """The oracle's row, once all that must hold of it and of the no-op agent's has been checked."""
    with watched() as events:
        gym.run("eval", "run", "--config", config, *source, "--env", ORACLE, "--output", gym.output("oracle"))
        gym.run("eval", "run", "--config", config, *source, "--env", NOOP, "--output", gym.output("noop"))
    (gold,), (nothing,) = read(gym.output("oracle")), read(gym.output("noop"))
    for row, reward in ((gold, 1.0), (nothing, 0.0)):
        assert row["reward"] == reward, row.get("test_output", "")[-2000:]
        assert row["evaluation_completed"] is True
        assert row["mask_sample"] is False
        assert row["resolved"] is (reward == 1.0)
        assert boxes(row["_ng_run_id"]) == []
    one_after_the_other = ["create task", "destroy task", "create verifier", "destroy verifier"]
    assert of_run(events, gold["_ng_run_id"]) == one_after_the_other
    assert of_run(events, nothing["_ng_run_id"]) == one_after_the_other[:2]
    assert not list((gym.folder / "state" / "runs").glob("*/run.json"))
    return gold


def test_the_example(gym: Gym, calc_row: dict[str, Any]) -> None:
    """From the clone alone: the example data set's image is built from this repository."""
    (example,) = read(str(REPOSITORY / "resources_servers/swebench/data/example.jsonl"))
    assert {name: value for name, value in example.items() if name != "responses_create_params"} == calc_row
    gold = check_gold_and_nothing(gym, CONFIG, "--dataset", "example")
    assert gold["_ng_task_id"] == {"taskset": "swebench:example", "task_id": "gym-test__calc-1"}


def test_a_real_task(gym: Gym) -> None:
    """A row of SWE-bench Verified as it is published, on a local image that the overlay names."""
    rows, script = SHARED / "data/swe_rows/swebench_verified.jsonl", SHARED / "tools/swe_images/build.py"
    if not rows.is_file():
        pytest.skip(f"real rows are extra material, looked for in {rows} (GYM_SHARED)")
    image = "gym-swe/pylint-dev_s_pylint-4551:latest"
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode:
        if not script.is_file():
            pytest.skip(f"image {image} is not there, nor is {script} to build it with (GYM_SHARED)")
        built = subprocess.run([sys.executable, str(script), "pylint-dev__pylint-4551"], capture_output=True, text=True, check=False)
        if built.returncode:
            pytest.skip(f"image {image} could not be built: {built.stderr[-300:]}")
    row = next(row for row in read(str(rows)) if row["instance_id"] == "pylint-dev__pylint-4551")
    template = 'resources_servers: {swebench: {image_template: "gym-swe/{instance_id_s}:latest"}}'
    config = gym.overlay(
        f"config_paths: [{CONFIG}]\nswebench_oracle_resources_server:\n  {template}\nswebench_noop_resources_server:\n  {template}\n"
    )
    gold = check_gold_and_nothing(gym, config, "--input", gym.rows(row))
    assert len(json.loads(row["FAIL_TO_PASS"])) == 10
    assert gold["failed_required_tests"] == []


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
        source = ["--no-serve", "--dataset", "example", "--env", ORACLE]
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
    run = gym.start("eval", "run", "--config", config, "--dataset", "example", "--env", ORACLE, "--output", gym.output())
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
