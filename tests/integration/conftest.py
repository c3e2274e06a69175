"""Runs of `gym` for tests: whole processes, known by a tag in their environment, with nothing of theirs left afterwards."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = Path(__file__).resolve().parent / "roots"
GYM = Path(sys.executable).with_name("gym")

CONFIG = """
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
- responses_api_models/scripted_model/configs/scripted_model.yaml
box:
  resources_servers:
    faulty: {{entrypoint: app.py, events: {events}, session_receipt_seconds: 8}}
agent:
  responses_api_agents:
    faulty_agent: {{entrypoint: app.py, events: {events}}}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 2
"""


def wait_for(condition: Callable[[], Any], what: str | Callable[[], str], seconds: float = 15) -> Any:
    """Poll until `condition` holds, and return what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.02)


def run_body(rollout: str = "r1", *, metadata: dict[str, str] | None = None, timeout: float | None = None, **data: Any) -> dict[str, Any]:
    """A body of `/run` for the configuration above."""
    params: dict[str, Any] = {"input": "go"}
    if metadata:
        params["metadata"] = metadata
    task_input: dict[str, Any] = {"responses_create_params": params, "task_data": data}
    if timeout is not None:
        task_input["agent_timeout_seconds"] = timeout
    task = {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": task_input}
    return {"episode_id": {"rollout_id": rollout, "attempt": 0}, "task": task}


class Started:
    """A `gym` command that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return self._err.read_text(errors="replace")

    @property
    def output(self) -> str:
        """What it wrote to stdout so far."""
        return self._out.read_text(errors="replace")

    def ready(self, seconds: float = 30) -> dict[str, Any]:
        """Wait for the ready record of `gym env start --json`."""

        def record() -> Any:
            assert self.process.poll() is None, self.errors
            return self.output.partition("\n")[0] if "\n" in self.output else None

        return orjson.loads(wait_for(record, "ready", seconds))

    def signal(self, number: int = signal.SIGINT, *, group: bool = False) -> None:
        """Signal the process, or its whole group as a terminal does."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def ended(self, seconds: float = 20) -> int:
        """Wait for its end, and return its exit code as a shell shows it."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {seconds:g} s; it said:\n{self.errors}") from None
        return 128 - code if code < 0 else code


class GymRuns:
    """`gym` commands with a state folder, an event file and a tag of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = uuid.uuid4().hex
        self.state = folder / "state"
        self.events_file = folder / "events.jsonl"
        self.config = folder / "config.yaml"
        self.config.write_text(CONFIG.format(events=self.events_file))
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GYM_")},
            "GYM_STATE_DIR": str(self.state),
            "GYM_EXTRA_ROOTS": str(ROOTS),
            "GYM_TEST_TAG": self.tag,
        }
        self._started: list[Started] = []

    def write(self, name: str, text: str) -> Path:
        """Write a file of the run."""
        path = self.folder / name
        path.write_text(text)
        return path

    def rows(self, *rows: dict[str, Any]) -> Path:
        """Write rows for `gym eval run`."""
        return self.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))

    def begin(self, *arguments: Any, **env: str) -> Started:
        """Start a `gym` command in a process group of its own."""
        number = len(self._started)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [str(GYM), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=REPOSITORY,
                env={**self.env, **env},
                process_group=0,
            )
        started = Started(process, out, err)
        self._started.append(started)
        return started

    def start(self, *overrides: str, config: Path | None = None) -> Started:
        """`gym env start` with the configuration of this file."""
        return self.begin("env", "start", "--json", "--config", config or self.config, *overrides)

    def run(self, *arguments: Any, seconds: float = 60) -> tuple[int, str, str]:
        """Run a `gym` command to its end: exit code, stdout, stderr."""
        started = self.begin(*arguments)
        code = started.ended(seconds)
        return code, started.output, started.errors

    def eval(self, rows: Path, *arguments: Any, config: Path | None = None, serve: bool = True) -> Started:
        """Begin `gym eval run` over rows."""
        given = ["--config", config or self.config] if serve else ["--no-serve"]
        return self.begin("eval", "run", *given, "--input", rows, "--env", "env", "--output", self.folder / "out.jsonl", *arguments)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The records of a JSONL file of the run."""
        path = self.folder / name
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the servers wrote down."""
        return self.lines("events.jsonl")

    def happened(self, rollout: str | None = None) -> list[str]:
        """The events, as words."""
        return [event["what"] for event in self.events if rollout is None or event["episode"] == rollout]

    def processes(self) -> list[int]:
        """Every process that carries our tag."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.tag.encode() in path.read_bytes() and psutil.Process(int(path.parent.name)).status() != psutil.STATUS_ZOMBIE:
                    found.append(int(path.parent.name))
            except (OSError, psutil.Error):
                continue
        return found

    def server(self, name: str) -> int:
        """The pid of a server's process."""
        for pid in self.processes():
            if psutil.Process(pid).cmdline()[:1] == [f"gym server {name}"]:
                return pid
        raise AssertionError(f"server {name} has no process of its own")

    def run_folders(self) -> list[str]:
        """What is left of runs in the state folder, logs of crashed servers aside."""
        if not self.state.exists():
            return []
        return [str(path.relative_to(self.state)) for path in self.state.glob("runs/*/*") if path.name != "logs"]

    def check_nothing_left(self, *addresses: str, seconds: float = 5) -> None:
        """No process, no folder, and nobody listening at these URLs."""
        wait_for(lambda: not self.processes(), f"processes are left: {self.processes()}", seconds)
        assert self.run_folders() == []
        for address in addresses:
            host, _, port = address.removeprefix("http://").partition(":")
            with socket.socket() as probe:
                assert probe.connect_ex((host, int(port))) != 0, f"somebody still listens at {address}"

    def end(self) -> None:
        """Kill whatever is left."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for started in self._started:
            started.process.wait()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[GymRuns]:
    """`gym` commands of one test; after it none may be left."""
    made = GymRuns(tmp_path)
    yield made
    left = made.processes()
    made.end()
    assert not left, f"{len(left)} processes of the test are left over"
