"""`gym eval run` with a model that refuses, breaks, babbles or never answers: one line or one failure row each, nothing lost."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import GymRuns, Started

pytestmark = pytest.mark.slow

EXAMPLE = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
ENVIRONMENT = "example_session_state_mgmt_environment_server.environment_servers.single_agent_turn"
TOOLS = [{"type": "function", "name": "increment_counter", "parameters": {"type": "object"}}]


def row(name: str, *steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A row whose model plays these steps."""
    params = {"input": [{"role": "user", "content": "count"}], "tools": TOOLS, "metadata": {"script": json.dumps(steps)}}
    return {"task_id": name, "responses_create_params": params, "initial_count": 0, "expected_count": 1, **fields}


GOOD = ({"call": "increment_counter", "arguments": {"count": 1}}, {"say": "Done."})


def evaluate(runs: GymRuns, *rows: dict[str, Any], arguments: tuple[str, ...] = ()) -> Started:
    """Evaluate these rows to the end."""
    output = runs.folder / "out.jsonl"
    given = ["--config", EXAMPLE, "--input", runs.rows(*rows), "--output", output, "--attempts", "1"]
    if "--model-type" not in arguments:
        given += ["--model-type", "scripted_model"]
    started = runs.begin("eval", "run", *given, *arguments)
    started.ended(60)
    assert "Traceback" not in started.errors, started.errors
    assert "never retrieved" not in started.errors
    runs.check_nothing_left()
    return started


@pytest.mark.parametrize(
    ("step", "kind", "stage"),
    [
        ({"status": 429, "retry_after": 0.1}, "agent_request_failed", "agent"),
        ({"status": 500}, "agent_request_failed", "agent"),
        ({"status": 400}, "agent_request_failed", "agent"),
        ({"body": "<html>garbage"}, "agent_request_failed", "agent"),
        ({"body": ""}, "agent_request_failed", "agent"),
        ({"hang": True}, "cancelled", "agent"),
    ],
)
def test_one_bad_rollout_is_one_failure_row_and_harms_no_other(runs: GymRuns, step: dict[str, Any], kind: str, stage: str) -> None:
    started = evaluate(runs, row("good", *GOOD), row("bad", GOOD[0], step), arguments=(f"{ENVIRONMENT}.default_episode_timeout_seconds=2",))
    assert started.process.returncode == 76
    assert [line["reward"] for line in runs.lines("out.jsonl")] == [1.0]
    failures = runs.lines("out_failures.jsonl")
    assert [(failure["_ng_failure_kind"], failure["_ng_failure_stage"]) for failure in failures] == [(kind, stage)]
    coverage = json.loads((runs.folder / "out_coverage.json").read_bytes())
    assert [coverage[name] for name in ("expected", "measured", "failed", "owed")] == [2, 1, 1, 0]


def test_a_hanging_model_with_a_time_for_the_agent_is_graded(runs: GymRuns) -> None:
    started = evaluate(runs, row("slow", GOOD[0], {"hang": True}, agent_timeout_seconds=1))
    assert started.process.returncode == 0, started.errors
    (measured,) = runs.lines("out.jsonl")
    assert (measured["reward"], measured["agent_timed_out"]) == (1.0, True)
    assert [item["type"] for item in measured["response"]["output"]] == ["function_call", "function_call_output"]


def test_an_agent_whose_model_never_answered_is_not_measured(runs: GymRuns) -> None:
    started = evaluate(runs, row("good", *GOOD), row("silent", {"hang": True}, agent_timeout_seconds=1))
    assert started.process.returncode == 76, started.errors
    assert [line["reward"] for line in runs.lines("out.jsonl")] == [1.0]
    (failure,) = runs.lines("out_failures.jsonl")
    assert (failure["_ng_failure_kind"], failure["_ng_failure_stage"], failure["_ng_failure_terminal"]) == ("model_failed", "agent", False)
    assert failure["_ng_failure_message"].endswith("nothing was measured: its model had not answered a single call")


class Upstream(http.server.BaseHTTPRequestHandler):
    """An endpoint that refuses every key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked += 1  # type: ignore[attr-defined]
        body = json.dumps({"error": {"message": f"Incorrect API key provided: {self.headers['authorization']}"}}).encode()
        self.send_response(401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def refusing() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.asked = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("isolation", ["colocated", "process"])
def test_a_refused_key_stops_the_run_with_one_line(runs: GymRuns, refusing: Any, isolation: str) -> None:
    key = "sk-this-is-the-secret-key"
    rows = [row(str(index), *GOOD) for index in range(50)]
    endpoint = (f"policy_base_url=http://127.0.0.1:{refusing.server_port}/v1", f"policy_api_key={key}", "policy_model_name=m")
    started = evaluate(runs, *rows, arguments=("--model-type", "openai_model", *endpoint, f"isolation={isolation}", "--concurrency", "4"))
    assert started.process.returncode == 1, started.errors
    lines = [line for line in started.errors.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, started.errors
    assert "401" in lines[0]
    assert key not in started.errors + started.output
    assert refusing.asked < 10
    for path in runs.folder.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


def test_an_endpoint_that_is_not_there_fails_each_rollout(runs: GymRuns) -> None:
    endpoint = ("policy_base_url=http://127.0.0.1:1/v1", "policy_api_key=none-needed", "policy_model_name=m")
    retries = "policy_model.responses_api_models.openai_model.max_retries=1"
    started = evaluate(runs, row("a", *GOOD), row("b", *GOOD), arguments=("--model-type", "openai_model", *endpoint, f"+{retries}"))
    assert started.process.returncode == 76, started.errors
    assert {failure["_ng_failure_kind"] for failure in runs.lines("out_failures.jsonl")} == {"transport_unreachable"}
    assert len(runs.lines("out_failures.jsonl")) == 2


def test_the_models_own_mistakes_are_measured(runs: GymRuns) -> None:
    wrong = [{"call": "increment_counter", "arguments": "{not json"}, {"call": "no_such_tool"}, {"say": "I gave up."}]
    started = evaluate(runs, row("wrong", *wrong), row("late", *wrong[:2], *GOOD))
    assert started.process.returncode == 0, started.errors
    assert sorted(line["reward"] for line in runs.lines("out.jsonl")) == [0.0, 1.0]


def test_rows_that_no_episode_can_be_made_of(runs: GymRuns) -> None:
    broken = {"task_id": "broken", "responses_create_params": {"input": 3}, "initial_count": 0, "expected_count": 1}
    odd = row("odd", *GOOD, initial_count="many")
    started = evaluate(runs, row("good", *GOOD), broken, odd)
    assert started.process.returncode in (1, 76), started.errors
    if started.process.returncode == 76:
        assert len(runs.lines("out.jsonl")) == 1
        assert all(failure["_ng_failure_terminal"] for failure in runs.lines("out_failures.jsonl"))
