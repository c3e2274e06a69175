"""How far a run is: what is told of it, on a terminal (a pseudo-terminal of ours) and elsewhere (a pipe)."""

import asyncio
import fcntl
import io
import json
import logging
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from gym.protocol.rollouts import Outcome
from gym.rollouts import progress
from gym.rollouts.flights import Flight, Stages
from gym.rollouts.gate import Gate
from gym.rollouts.ledger import Ledger
from gym.rollouts.outcomes import call_failure
from gym.rollouts.snapshot import View, duration, take
from gym.runtime.logs import log_to_stderr
from tests.unit.rollouts.conftest import Bench

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@contextmanager
def listening(read: int, write: int) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A stream that writes to `write`, and what has come out at `read`; read all the while, so that nobody has to wait."""
    heard: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                piece = os.read(read, 4096)
            except OSError:  # how a pseudo-terminal says that its other side is closed
                return
            if not piece:
                return
            heard.append(piece)

    listener = threading.Thread(target=listen)
    listener.start()
    stream = os.fdopen(write, "w")
    try:
        yield stream, lambda: b"".join(heard).decode()
    finally:
        stream.close()
        listener.join()
        os.close(read)


@contextmanager
def terminal(columns: int = 160) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    main, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with listening(main, other) as found:
        yield found


def ledger_of(measured: int, failed: int, again: int, owed: int) -> Ledger:
    ledger = Ledger(measured + failed + again + owed, 1, 3)
    for rollout in range(measured + failed + again):
        ledger.reserve(rollout)
        if rollout < measured:
            ledger.settle(rollout, Outcome.MEASURED, reward=0.5)
            continue
        ledger.charge(rollout, call_failure(RuntimeError("x")))
        ledger.settle(rollout, Outcome.FAILED, kind="agent_request_failed", again=rollout >= measured + failed)
    return ledger


def test_what_waits_to_be_tried_again_is_not_done() -> None:
    ledger = ledger_of(measured=4, failed=2, again=3, owed=5)
    flights = {"9-0": Flight(10.0, "env"), "10-0": Flight(100.0, "env"), "11-0-a1": Flight(130.0, "env")}
    view = View(ledger, flights, Gate(8), adaptive=True)
    told = Stages({"9-0": "verification", "10-0": "agent"}, queued=1)
    state = take(view, told, started=0.0, done_before=1, now=135.0)
    assert state.line() == (
        "7/15 done, 3 running (admission 1, oldest 5s; agent 1, oldest 35s; verification 1, oldest 2m05s), 3 to be tried again, "
        "3 failed, failed attempts: agent_request_failed 5 invalid_task 1, mean reward 0.500, concurrency 8 (auto), "
        "2m15s gone, about 3m00s left"
    )
    assert state.ended == {"measured": 4, "failed": 3}
    ledger.reserve(6)
    assert (ledger.done, ledger.retrying) == (7, 2)
    unknown = take(view, None, started=0.0, done_before=7, now=135.0)
    assert unknown.running_words == "3 running (oldest 2m05s)"
    assert unknown.left is None, "nothing has ended in this run"


def test_pauses_that_the_model_asked_for_are_told() -> None:
    gate = Gate(8)
    gate.set(4, 112.0)
    assert take(View(ledger_of(1, 0, 0, 1), {}, gate), None, started=0.0, done_before=0, now=100.0).pace_words == (
        "concurrency 4, nothing new for 12s"
    )


@pytest.mark.parametrize(("seconds", "text"), [(3, "3s"), (75, "1m15s"), (7265, "2h01m")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.fixture
def busy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A run of half a second in which something fails, something is tried again, and something takes long."""
    for name, seconds in (("LIVE_SECONDS", 0.02), ("STAGES_SECONDS", 0.02), ("PLAIN_SECONDS", 0.05)):
        monkeypatch.setattr(progress, name, seconds)
    monkeypatch.setattr("gym.rollouts.collect.backoff", lambda tries: 0.4)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    bench.rows(6)

    def script(rollout_id: str, attempt: int, request: dict[str, Any]) -> Any:
        if rollout_id == "1-0" and attempt == 0:
            return Bench.failure("bench:\x1b[2Jodd")
        if rollout_id == "2-0":
            return Bench.failure(terminal=True)

        async def slow() -> dict[str, Any]:
            await asyncio.sleep(0.5)
            return Bench.result(0.25)

        return slow() if rollout_id == "5-0" else Bench.result(0.75)

    bench.script(script).told = Stages({"5-0": "agent"})
    return bench


async def test_a_terminal_shows_a_live_view(busy: Bench) -> None:
    with terminal() as (stream, heard):
        summary = await busy.collect(progress=stream, attempts=2, concurrency=3)
        stream.flush()
        await asyncio.sleep(0.05)
        drawn = heard()
    assert (summary.coverage.measured, summary.coverage.failed) == (5, 1)
    assert "\x1b[?25l" in drawn, "the cursor is hidden"
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l"), "and shown again at the end"
    assert "\x1b[2Jodd" not in drawn, "a name does not clear the screen"
    text = CONTROL.sub("", drawn)
    for words in (
        "4/6 done",
        "1 running (agent 1, oldest 0s), concurrency 3",
        "1 to be tried again",
        "3 measured, 1 failed",
        r"failed attempts: bench:\x1b[2Jodd 1 agent_run_error 1",
        "mean reward 0.750",
        "0s gone, about 0s left",
        "the first, of rollout 1-0: it broke",
    ):
        assert words in text, text[-2000:]


async def test_logs_stand_above_the_live_view_and_stdout_is_left_alone(
    busy: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("handlers", []), ("level", logging.WARNING)):
        monkeypatch.setattr(logging.getLogger(), name, value)
    log_to_stderr(logging.WARNING)
    bench, script = busy, busy.dispatcher._script

    def logging_script(*told: Any) -> Any:
        logging.getLogger("gym.test").warning("a warning of %s", told[0])
        print("a record")
        return script(*told)

    with terminal() as (stream, heard):
        bench.dispatcher._script = logging_script
        await bench.collect(progress=stream, attempts=2, concurrency=1)
        stream.flush()
        await asyncio.sleep(0.05)
        lines = [CONTROL.sub("", line) for line in re.split(r"[\r\n]+|\x1b\[\d*[AK]", heard())]
    warnings = [line for line in lines if "a warning of" in line]
    assert len(warnings) == 7
    assert all(re.fullmatch(r"\S+Z WARNING gym\.test a warning of \d-0\s*", line) for line in warnings), warnings
    assert capsys.readouterr().out == "a record\n" * 7


async def test_a_narrow_terminal_gets_lines_that_fit(busy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # the width of a terminal that is none of this process's own streams
    with terminal(columns=40) as (stream, heard):
        await busy.collect(progress=stream, attempts=2, concurrency=3)
        stream.flush()
        await asyncio.sleep(0.05)
        lines = [CONTROL.sub("", line) for line in re.split(r"[\r\n]+|\x1b\[\d*[AK]", heard())]
    assert 30 < max(map(len, lines)) <= 40


@pytest.mark.parametrize("term", ["xterm", "dumb"])
async def test_elsewhere_there_are_plain_lines(busy: Bench, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a pipe, and on a terminal that can draw nothing."""
    monkeypatch.setenv("TERM", term)
    with terminal() if term == "dumb" else listening(*os.pipe()) as (stream, heard):
        await busy.collect(progress=stream, attempts=2, concurrency=3)
        stream.flush()
        await asyncio.sleep(0.05)
        lines = heard().splitlines()
    assert lines.pop(1) == "the first failed attempt, of rollout 1-0: it broke"
    assert len(lines) >= 3
    assert all(" done, " in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("4/6 done, 1 running (agent 1, oldest 0s), 1 to be tried again, 1 failed, failed attempts: ")
    assert r"bench:\x1b[2Jodd 1" in lines[0]
    assert "mean reward 0.750, concurrency 3, 0s gone" in lines[0]


async def test_a_reader_that_goes_away_does_not_end_the_run(busy: Bench) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        assert (await busy.collect(progress=stream, attempts=2)).coverage.measured == 5
        with pytest.raises(BrokenPipeError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    closed = io.StringIO()
    closed.close()
    assert (await busy.collect(progress=closed, attempts=2, overwrite=True)).coverage.measured == 5


async def test_lines_come_less_often_once_a_run_is_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.01)
    clock = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    stream = io.StringIO()

    async def ask(environments: Any) -> None:
        clock[0] += 70.0

    async with progress.shown(View(ledger_of(1, 0, 0, 1), {}, Gate(1)), ask, stream):
        await asyncio.sleep(0.1)
    assert len(stream.getvalue().splitlines()) == 1


SLOW = """
- when: "."
  steps: [{say: done, sleep: 2.5}]
"""


@pytest.mark.slow
def test_the_command_draws_and_keeps_stdout_for_records(tmp_path: Path) -> None:
    """With real servers, which are asked for the stages of their episodes."""
    script = tmp_path / "slow.yaml"
    script.write_text(SLOW)
    config = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
    model = f"++policy_model.responses_api_models.scripted_model.script={script}"
    run = ["eval", "run", "--config", config, "--model-type", "scripted_model", model, "--limit", "2", "--json"]
    command = [sys.executable, "-c", "from gym.cli.main import main; main()", *run, "--output", str(tmp_path / "out.jsonl")]
    environ = {**os.environ, "GYM_STATE_DIR": str(tmp_path / "state"), "TERM": "xterm"}
    with terminal() as (stream, heard):
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stream, env=environ, cwd=Path(__file__).parents[3], timeout=60, check=False
        )
        said = CONTROL.sub("", heard())
    assert ended.returncode == 0, said
    assert [json.loads(line)["event"] for line in ended.stdout.splitlines()] == ["launch", "done"]
    assert re.search(r"0/2 done .*2 running \(agent 2, oldest [12]s\), concurrency 64", said, re.DOTALL), said
    assert "2 expected = 2 measured" in said
