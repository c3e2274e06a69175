"""`gym` as a user runs it, for tests of SWE servers: gold must resolve, doing nothing must not, and no sandbox may be left."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
GYM = [sys.executable, "-c", "from gym.cli.main import main; main()"]


def skip_without_environment(said: str) -> None:
    if "cannot build the Python environment" in said:
        pytest.skip(f"the server's own environment cannot be built here: {said[-300:]}")


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


def read(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()] if Path(path).exists() else []


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


def check_gold_and_nothing(gym: Gym, config: str, server: str, *source: str) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """The oracle's rows, and the sandboxes of both runs, once all that must hold of them and of the no-op agent's rows has been checked."""
    with watched() as events:
        for agent in ("oracle", "noop"):
            environment = f"{server}_{agent}_environment_server"
            gym.run("eval", "run", "--config", config, *source, "--env", environment, "--output", gym.output(agent))
    gold, nothing = read(gym.output("oracle")), read(gym.output("noop"))
    assert len(gold) == len(nothing) > 0
    for row, reward in [*((row, 1.0) for row in gold), *((row, 0.0) for row in nothing)]:
        shown = (row["instance_id"], row.get("failure_reason"), row.get("test_output", "")[-2000:])
        assert row["mask_sample"] is False, shown
        assert row["reward"] == reward, shown
        assert row["evaluation_completed"] is True
        assert row["resolved"] is (reward == 1.0)
    for row in (gold[0], nothing[0]):
        assert boxes(row["_ng_run_id"]) == []
    assert not list((gym.folder / "state" / "runs").glob("*/run.json"))
    return gold, of_run(events, gold[0]["_ng_run_id"]), of_run(events, nothing[0]["_ng_run_id"])
