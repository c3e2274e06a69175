"""`gym env start` and `gym eval run` as processes: signals at any moment, servers that die, starts that fail."""

import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from tests.integration.conftest import GymRuns, Started, run_body, wait_for

pytestmark = pytest.mark.slow

ROW = {"task_id": "1", "responses_create_params": {"input": "go"}}
SLOW = {**ROW, "task_id": "2", "responses_create_params": {"input": "go", "metadata": {"do": "hang"}}}


def urls(ready: dict[str, Any]) -> list[str]:
    """Every address of a run."""
    return [ready["head_url"], *(instance["url"] for instance in ready["instances"].values())]


class Caller(threading.Thread):
    """One POST to `/run`, in a thread."""

    def __init__(self, ready: dict[str, Any], body: dict[str, Any], seconds: float = 30) -> None:
        super().__init__(daemon=True)
        self.host = ready["instances"]["env"]["url"].removeprefix("http://")
        with open(ready["token_file"]) as file:  # noqa: PTH123 - the path comes from the record
            self.token = file.read()
        self.body, self.seconds = orjson.dumps(body), seconds
        self.reply: Any = None
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self.host, timeout=self.seconds)
        try:
            connection.request("POST", "/run", self.body, {"authorization": f"Bearer {self.token}"})
            response = connection.getresponse()
            self.reply = (response.status, orjson.loads(response.read()))
        except (OSError, http.client.HTTPException) as error:
            self.reply = error
        finally:
            connection.close()

    def answer(self) -> Any:
        """What came back."""
        self.join(self.seconds + 5)
        return self.reply


def no_traceback(started: Started) -> None:
    assert "Traceback" not in started.errors, started.errors
    assert "never retrieved" not in started.errors


PYTHON_STARTS_SECONDS = 0.2
"""Until then Python itself may be starting, on a busy machine, and what it says of a Ctrl-C is not ours."""


@pytest.mark.parametrize(("delay", "group"), [(0.1, True), (0.25, False), (0.45, True), (0.7, False), (1.0, True)])
def test_ctrl_c_at_any_moment_of_a_start(runs: GymRuns, delay: float, group: bool) -> None:
    started = runs.start()
    time.sleep(delay)
    started.signal(group=group)
    assert started.ended() == 130, started.errors
    if delay > PYTHON_STARTS_SECONDS:
        no_traceback(started)
    runs.check_nothing_left()
    assert not list(runs.state.glob("runs/*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_when_ready(runs: GymRuns, number: signal.Signals, code: int) -> None:
    started = runs.start()
    ready = started.ready()
    assert len(runs.processes()) == len(ready["instances"]) + 1
    folder = runs.state / "runs" / ready["run_id"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*") if path.is_file())
    started.signal(number)
    assert started.ended() == code
    no_traceback(started)
    runs.check_nothing_left(*urls(ready))


def test_a_closed_terminal_is_not_heard_under_nohup(runs: GymRuns) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does, for the command to inherit
    try:
        started = runs.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    ready = started.ready()
    started.signal(signal.SIGHUP)
    assert Caller(ready, run_body()).answer()[0] == 200
    started.signal(signal.SIGTERM)
    assert started.ended() == 143


def test_the_token_is_in_no_log_and_on_no_command_line(runs: GymRuns) -> None:
    started = runs.start()
    ready = started.ready()
    caller = Caller(ready, run_body())
    assert caller.answer()[0] == 200
    folder = runs.state / "runs" / ready["run_id"] / "logs"
    wait_for(lambda: "/run 200" in (folder / "env.log").read_text(), "the call is logged")
    logs = [path.read_text() for path in folder.glob("*.log")]
    commands = [" ".join(psutil.Process(pid).cmdline()) for pid in runs.processes()]
    for text in (*logs, *commands, started.errors, started.output):
        assert caller.token not in text
    started.signal()
    assert started.ended() == 130


def test_the_first_ctrl_c_lets_an_episode_end(runs: GymRuns) -> None:
    started = runs.start()
    ready = started.ready()
    caller = Caller(ready, run_body(metadata={"seconds": "1"}))
    wait_for(lambda: "touched" in runs.happened(), "the agent acts")
    started.signal()
    wait_for(lambda: "1 episode(s) still running" in started.errors, "it says what is left")
    refused = Caller(ready, run_body("r2")).answer()
    assert refused[0] == 503
    assert caller.answer()[1]["result"]["reward"] == 1.0
    assert started.ended() == 130
    runs.check_nothing_left(*urls(ready))


def test_the_second_ctrl_c_cancels_and_cleans_up(runs: GymRuns) -> None:
    started = runs.start()
    ready = started.ready()
    caller = Caller(ready, run_body(metadata={"do": "hang"}))
    wait_for(lambda: "touched" in runs.happened(), "the agent acts")
    started.signal(group=True)
    wait_for(lambda: "still running" in started.errors, "it drains")
    started.signal(group=True)
    status, reply = caller.answer()
    assert (status, reply["failure"]["failure_kind"], reply["failure"]["stage"]) == (200, "shutdown", "agent")
    assert reply["failure"]["partial_response"]["id"] == "resp_agent"
    assert started.ended() == 130
    assert runs.happened()[-2:] == ["agent closed", "released"]
    no_traceback(started)
    runs.check_nothing_left(*urls(ready))


def test_the_third_ctrl_c_kills(runs: GymRuns) -> None:
    started = runs.start("env.environment_servers.single_agent_turn.cleanup_timeout_seconds=100")
    ready = started.ready()
    Caller(ready, run_body(metadata={"do": "hang", "close_seconds": "100"}), seconds=10)
    wait_for(lambda: "touched" in runs.happened(), "the agent acts")
    for _ in range(3):
        started.signal()
        time.sleep(0.3)
    assert started.ended(5) == 130
    runs.check_nothing_left(*urls(ready))


@pytest.mark.parametrize("victim", ["box", "agent", "env", "policy_model"])
def test_a_server_that_is_killed_is_named_and_started_again(runs: GymRuns, victim: str) -> None:
    started = runs.start()
    ready = started.ready()
    code, output, _ = runs.run("env", "status", "--json")
    assert code == 0
    status = orjson.loads(output)
    caller = Caller(ready, run_body(metadata={"do": "hang"} if victim != "policy_model" else {"seconds": "1"}))
    wait_for(lambda: "touched" in runs.happened(), "the agent acts")
    os.kill(status["instances"][victim]["pid"], signal.SIGKILL)
    wait_for(lambda: f"server {victim} died (SIGKILL) and is started again" in started.errors, "it is named")
    if victim == "agent":
        reply = caller.answer()[1]
        assert (reply["failure"]["failure_kind"], reply["failure"]["stage"]) == ("transport_peer_drop", "agent")
    elif victim == "env":
        assert isinstance(caller.answer(), (OSError, http.client.HTTPException))
        wait_for(lambda: runs.happened()[-2:] == ["agent closed", "released"] or "released" in runs.happened(), "its sessions are closed")
    elif victim == "policy_model":
        assert "result" in caller.answer()[1]
    later = Caller(ready, run_body("later"))
    assert later.answer()[1].get("result", {}).get("reward") == 1.0, later.reply
    started.signal()
    if victim == "box":  # whose lost session the agent does not know of, so that it still hangs
        wait_for(lambda: "still running" in started.errors, "it drains")
        started.signal()
    assert started.ended() == 130
    no_traceback(started)
    kept = started.errors.partition("logs are kept in ")[2].split("\n")[0]
    assert (Path(kept) / f"{victim}.log").is_file(), "the logs that it names are gone"
    runs.check_nothing_left(*urls(ready))


def test_the_parent_killed_takes_its_servers_with_it(runs: GymRuns) -> None:
    started = runs.start()
    ready = started.ready()
    Caller(ready, run_body(metadata={"do": "hang"}), seconds=5)
    wait_for(lambda: "touched" in runs.happened(), "the agent acts")
    started.process.kill()
    wait_for(lambda: not runs.processes(), "the servers are gone", 10)
    assert "released" in runs.happened()
    code, _, errors = runs.run("env", "status")
    assert (code, "no servers are running" in errors) == (1, True)
    again = runs.start()
    again.ready()
    again.signal()
    assert again.ended() == 130
    runs.check_nothing_left()


def test_a_port_that_is_taken_is_one_line(runs: GymRuns) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for override in (f"+box.resources_servers.faulty.port={port}", f"+head_server.port={port}"):
            started = runs.start(override)
            assert started.ended() == 1
            lines = [line for line in started.errors.splitlines() if "cannot listen" in line]
            assert (len(lines), str(port) in lines[0]) == (1, True), started.errors
            no_traceback(started)
            runs.check_nothing_left()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "must define exactly one server"),
        ("import os; os._exit(9)", "exit 9"),  # only where it is alone in its process
        ("{start} raise OSError('the licence server is away')", "the licence server is away"),
        ("{start} raise KeyError('oops')", "KeyError"),
    ],
)
@pytest.mark.parametrize("isolation", ["process"])
def test_a_server_that_cannot_start_is_named(runs: GymRuns, code: str, told: str, isolation: str) -> None:
    folder = runs.folder / "own" / "resources_servers" / "broken"
    folder.mkdir(parents=True)
    start = "from gym.servers import ResourcesServer\nclass S(ResourcesServer):\n    async def start(self):\n        "
    (folder / "app.py").write_text(code.replace("{start} ", start) + "\n")
    text = runs.config.read_text() + "broken:\n  resources_servers:\n    broken: {entrypoint: app.py}\n"
    roots = f"{runs.env['GYM_EXTRA_ROOTS']}:{runs.folder / 'own'}"
    config = runs.write("broken.yaml", text)
    started = runs.begin("env", "start", "--config", config, f"isolation={isolation}", GYM_EXTRA_ROOTS=roots)
    assert started.ended() == 1, started.errors
    assert "broken" in started.errors
    assert told in started.errors
    if "KeyError" not in code:
        no_traceback(started)
    if isolation == "process":
        log = started.errors.partition("log: ")[2].split("\n")[0]
        assert Path(log).is_file(), "the log that the error names is gone"
    runs.check_nothing_left()


@pytest.mark.parametrize(
    ("code", "told"), [("import nothing_of_this_name", "nothing_of_this_name"), ("{start} raise OSError('away')", "away")]
)
def test_a_colocated_server_that_cannot_start_is_named(runs: GymRuns, code: str, told: str) -> None:
    test_a_server_that_cannot_start_is_named(runs, code, told, "colocated")


def test_a_second_run_stands_beside_the_first(runs: GymRuns) -> None:
    first, second = runs.start(), runs.start()
    ready = [started.ready() for started in (first, second)]
    code, _, errors = runs.run("env", "status")
    assert code == 1
    assert "--run" in errors
    assert all(record["run_id"] in errors for record in ready)
    rows = runs.rows(ROW)
    started = runs.eval(rows, serve=False)
    assert (started.ended(), "--run" in started.errors) == (1, True)
    started = runs.eval(rows, "--run", ready[1]["run_id"], serve=False)
    assert started.ended() == 0, started.errors
    first.signal()
    assert first.ended() == 130
    assert runs.run("env", "status")[0] == 0
    second.signal()
    assert second.ended() == 130
    runs.check_nothing_left(*urls(ready[0]), *urls(ready[1]))


@pytest.mark.parametrize(("delay", "group"), [(0.1, True), (0.3, False), (0.6, True), (None, False), (None, True)])
def test_ctrl_c_at_any_moment_of_an_evaluation(runs: GymRuns, delay: float | None, group: bool) -> None:
    started = runs.eval(runs.rows(ROW, SLOW))
    if delay is None:
        wait_for(lambda: runs.lines("out.jsonl") and runs.happened().count("touched") == 2, "one episode has ended and one runs")
    else:
        time.sleep(delay)
    started.signal(group=group)
    assert started.ended() == 130, started.errors
    if delay is None or delay > PYTHON_STARTS_SECONDS:
        no_traceback(started)
    if delay is None:
        assert len(runs.lines("out.jsonl")) == 1
        assert runs.happened().count("released") == 2
    runs.check_nothing_left()


@pytest.mark.parametrize("times", [2, 3])
def test_impatient_ctrl_cs_of_an_evaluation(runs: GymRuns, times: int) -> None:
    started = runs.eval(runs.rows(SLOW), "isolation=process")
    wait_for(lambda: "touched" in runs.happened(), "the episode runs")
    for _ in range(times):
        started.signal(group=True)
        time.sleep(0.05)
    assert started.ended() == 130, started.errors
    runs.check_nothing_left()


def test_ctrl_c_of_an_evaluation_on_other_servers(runs: GymRuns) -> None:
    servers = runs.start()
    ready = servers.ready()
    started = runs.eval(runs.rows(ROW, SLOW), serve=False)
    wait_for(lambda: runs.lines("out.jsonl") and runs.happened().count("touched") == 2, "one episode has ended and one runs")
    started.signal()
    assert started.ended() == 130
    no_traceback(started)
    assert len(runs.lines("out.jsonl")) == 1
    wait_for(lambda: runs.happened().count("released") == 2, "the episode was cleaned up")
    assert Caller(ready, run_body("later")).answer()[1]["result"]["reward"] == 1.0
    servers.signal()
    assert servers.ended() == 130
    runs.check_nothing_left(*urls(ready))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_an_evaluation_in_good_order(runs: GymRuns, number: signal.Signals) -> None:
    started = runs.eval(runs.rows(ROW, SLOW), "isolation=process")
    wait_for(lambda: runs.lines("out.jsonl") and runs.happened().count("touched") == 2, "one episode has ended and one runs")
    started.signal(number)
    assert started.ended() == 130
    no_traceback(started)
    assert len(runs.lines("out.jsonl")) == 1
    runs.check_nothing_left()
