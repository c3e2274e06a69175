"""`gym` as a user runs it, for tests of SWE servers: gold must resolve, doing nothing must not, and no sandbox may be left."""

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

REPOSITORY = Path(__file__).resolve().parents[3]
GYM = [sys.executable, "-c", "from gym.cli.main import main; main()"]

_CALC = """
config_paths: [environment_servers/single_agent_turn/configs/single_agent_turn.yaml]
sandbox:
  docker: {{create: {{network: none, pull: never}}}}
box:
  resources_servers:
    calc_swe:
      entrypoint: app.py
      inconclusive_verification_retries: 0
      sandbox_config: {{ttl_s: 900, metadata: {{test: "{tag}"}}}}
      datasets: {datasets}
agent:
  responses_api_agents: {{shell_agent: {{entrypoint: app.py}}}}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      default_episode_timeout_seconds: 300
"""


def calc_config(tag: str, rows: Path | None = None) -> str:
    """The small task's server with an agent that runs the script of its prompt; `rows` become its data set."""
    return _CALC.format(tag=tag, datasets=f"[{{name: calc, type: example, jsonl_fpath: {rows}}}]" if rows is not None else "[]")


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
def watched() -> Iterator[list[tuple[str, str]]]:
    """Every start and end of a sandbox while the context lasts: (instance, create or destroy with its role); filled in at its end.

    Listened to as they happen: the engine remembers only its last few hundred, and other tests run beside this one.
    """
    events: list[tuple[str, str]] = []
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
        events.append(
            (f"{labels.get('nemo-gym.run-id')}/{labels.get('nemo-gym.instance')}", f"{event['Action']} {labels.get('nemo-gym.role')}")
        )


@contextmanager
def servers(gym: Gym, config: str) -> Iterator[str]:
    """The servers of a configuration, for as long as the context lasts; their run id."""
    process = gym.start("env", "start", "--config", config, "--json")
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        if not ready:
            said = process.communicate(timeout=60)[1]
            skip_without_environment(said)
            raise AssertionError(said)
        yield json.loads(ready)["run_id"]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()


def check_gold_and_nothing(gym: Gym, config: str, prefix: str, *source: str) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """The oracle's rows, and the sandboxes of both runs, once all that must hold of them and of the no-op agent's rows has been checked."""
    with watched() as events, servers(gym, config) as run_id:
        for agent in ("oracle", "noop"):
            environment = f"{prefix}_{agent}_environment_server"
            gym.run("eval", "run", "--no-serve", *source, "--env", environment, "--output", gym.output(agent))
        assert boxes(run_id) == []
    gold, nothing = read(gym.output("oracle")), read(gym.output("noop"))
    assert len(gold) == len(nothing) > 0
    for row, reward in [*((row, 1.0) for row in gold), *((row, 0.0) for row in nothing)]:
        shown = (row["instance_id"], row.get("failure_reason"), row.get("test_output", "")[-2000:])
        assert row["mask_sample"] is False, shown
        assert row["reward"] == reward, shown
        assert row["evaluation_completed"] is True
        assert row["resolved"] is (reward == 1.0)
    assert not list((gym.folder / "state" / "runs").glob("*/run.json"))
    made = {name: [what for where, what in events if where == f"{run_id}/{prefix}_{name}_resources_server"] for name in ("oracle", "noop")}
    return gold, made["oracle"], made["noop"]
