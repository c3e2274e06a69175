"""`gym eval run` and the record of model calls: what rows say, what is left beside the output, and a model server that is killed."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from gym.models.calls import ModelCall
from gym.models.capture.records import read_calls
from tests.integration.conftest import GymRuns, Started, wait_for
from tests.integration.test_bad_models import EXAMPLE, GOOD, evaluate, row

pytestmark = pytest.mark.slow

MODEL = "policy_model.responses_api_models.scripted_model"
TWICE = (GOOD[0], GOOD[0], {"say": "Done."})


def saved(runs: GymRuns) -> dict[str, list[ModelCall]]:
    """The calls that were left beside the output, by capture key."""
    return {path.stem: read_calls(path) for path in (runs.folder / "out_model_calls").glob("*")}


@pytest.mark.parametrize("isolation", ["colocated", "process"])
def test_rows_say_what_was_called_and_files_hold_it(runs: GymRuns, isolation: str) -> None:
    started = evaluate(
        runs,
        row("good", *GOOD),
        row("bad", GOOD[0], {"status": 500}),
        arguments=("observability_enabled=true", f"isolation={isolation}"),
    )
    assert started.process.returncode == 76, started.errors
    (measured,) = runs.lines("out.jsonl")
    report = measured["ng_model_call_capture"]
    assert (report["rollout_id"], report["model_server"], report["gaps"]) == (measured["_ng_rollout_id"], "policy_model", [])
    assert not {"kept", "usage", "training"} & set(report)
    assert [(call["call_index"], call["finish_reason"], call["complete"]) for call in report["calls"]] == [
        (0, "tool_calls", True),
        (1, "stop", True),
    ]
    usage, metrics = measured["response"]["usage"], report["metrics"]
    assert (metrics["num_calls"], metrics["num_failed_calls"]) == (2, 0)
    assert (usage["input_tokens"], usage["output_tokens"]) == (metrics["tokens_in"], metrics["tokens_out"])

    (failure,) = runs.lines("out_failures.jsonl")
    calls = saved(runs)
    assert set(calls) == {measured["_ng_rollout_id"], failure["_ng_rollout_id"]}
    first, second = calls[measured["_ng_rollout_id"]]
    assert [call.call_id for call in (first, second)] == [call["model_call_id"] for call in report["calls"]]
    assert second.request["input"][: len(first.request["input"])] == first.request["input"]
    assert first.response is not None
    assert second.request["input"][len(first.request["input"])]["call_id"] == first.response["output"][0]["call_id"]
    refused = calls[failure["_ng_rollout_id"]][1]
    assert (refused.status, refused.error_category) == (500, "upstream_error")


def test_nothing_is_left_beside_the_output_where_nobody_asked(runs: GymRuns) -> None:
    evaluate(runs, row("good", *GOOD))
    (measured,) = runs.lines("out.jsonl")
    assert measured["ng_model_call_capture"]["metrics"]["num_calls"] == 2
    assert not (runs.folder / "out_model_calls").exists()


@pytest.mark.parametrize("budget", ["max_calls_per_rollout=1", "max_tokens_per_rollout=1"])
def test_what_stands_when_a_budget_is_used_up_is_graded(runs: GymRuns, budget: str) -> None:
    started = evaluate(runs, row("long", *TWICE), arguments=(f"+{MODEL}.{budget}", "--attempts", "3"))
    assert started.process.returncode == 0, started.errors
    (measured,) = runs.lines("out.jsonl")
    # One of two increments was made, and one is expected.
    assert (measured["reward"], measured["agent_budget_exhausted"], measured["_ng_attempt_index"]) == (1.0, True, 0)
    assert measured["ng_model_call_capture"]["budget_exhausted"] == budget.partition("=")[0]
    assert measured["ng_model_call_capture"]["metrics"]["num_calls"] == 1
    assert measured["response"]["incomplete_details"] == {"reason": "agent_budget_exhausted"}
    assert runs.lines("out_failures.jsonl") == []


def test_without_token_ids_there_is_nothing_to_train_on(runs: GymRuns) -> None:
    tokens = ("token_id_capture.enabled=true", "token_id_capture.all_agents=true")
    started = evaluate(runs, row("good", *GOOD), arguments=(*tokens, "--attempts", "3"))
    assert started.process.returncode == 76, started.errors
    (masked,) = runs.lines("out.jsonl")
    assert (masked["mask_sample"], masked["failure_kind"], masked["_ng_attempt_index"]) == (True, "token_capture_failed", 0)
    told = masked["_ng_token_capture"]
    assert (told["masked_reason"], told["n_calls"], told["n_calls_with_tokens"]) == ("no_token_ids", 2, 0)
    assert [item["type"] for item in masked["response"]["output"]] == ["function_call", "function_call_output", "message"]


def test_a_second_evaluation_on_the_same_servers_is_recorded_anew(runs: GymRuns) -> None:
    """Its rollouts have the names, and so the capture keys, of the first one's."""
    started = runs.begin("env", "start", "--json", "--config", EXAMPLE, "--model-type", "scripted_model", "observability_enabled=true")
    started.ready()
    given = ["--input", runs.rows(row("good", *GOOD)), "--output", runs.folder / "out.jsonl", "--overwrite"]
    identities: set[str] = set()
    for _ in range(2):
        code, _, errors = runs.run("eval", "run", "--no-serve", *given, "--env", "example_session_state_mgmt_environment_server")
        assert code == 0, errors
        (measured,) = runs.lines("out.jsonl")
        assert measured["ng_model_call_capture"]["gaps"] == []
        (calls,) = saved(runs).values()
        assert len(calls) == 2
        identities |= {call.call_id for call in calls}
    assert len(identities) == 4
    assert not list(runs.state.glob("runs/*/captures/*/*"))  # what was saved is not kept twice
    started.signal()
    assert started.ended() == 130
    runs.check_nothing_left()


def model_server(runs: GymRuns) -> psutil.Process:
    """The process of the model server."""
    found = [process for process in map(psutil.Process, runs.processes()) if process.cmdline()[:1] == ["gym server policy_model"]]
    assert len(found) == 1
    return found[0]


def begun(runs: GymRuns, count: int) -> Any:
    """Whether a record holds so many calls."""

    def holds(path: Path) -> bool:
        return len(read_calls(path)) == count

    return any(holds(path) for path in runs.state.rglob("captures/policy_model/*.jsonl"))


def in_its_second_call(runs: GymRuns, step: dict[str, Any], attempts: int) -> Started:
    """A run whose only rollout has made its first call, and is in its second."""
    rows = runs.rows(row("cut", GOOD[0], step))
    given = ["--config", EXAMPLE, "--model-type", "scripted_model", "--input", rows, "--output", runs.folder / "out.jsonl"]
    started = runs.begin("eval", "run", *given, "--attempts", attempts, "isolation=process", "observability_enabled=true")
    wait_for(lambda: begun(runs, 2), lambda: f"a second call is begun; {started.errors}", 30)
    return started


def test_a_model_server_that_is_killed_in_a_call_leaves_a_gap(runs: GymRuns) -> None:
    started = in_its_second_call(runs, {"hang": True}, 1)
    os.kill(model_server(runs).pid, signal.SIGKILL)
    assert started.ended(60) == 76, started.errors
    (failure,) = runs.lines("out_failures.jsonl")
    (gap,) = failure["_ng_failure_record"]["failure"]["ng_model_call_capture"]["gaps"]
    assert gap["code"] in ("model_call_capture_incomplete", "model_call_capture_unreadable")
    if gap["code"] == "model_call_capture_incomplete":  # it was back in time to be asked
        first, second = saved(runs)[failure["_ng_rollout_id"]]
        assert (first.complete, second.status) == (True, None)
    runs.check_nothing_left()


def test_the_attempt_after_a_killed_model_server_is_whole(runs: GymRuns) -> None:
    """Each attempt has a record of its own."""
    started = in_its_second_call(runs, {"say": "Done.", "sleep": 2}, 2)
    os.kill(model_server(runs).pid, signal.SIGKILL)
    assert started.ended(60) == 0, started.errors
    (measured,) = runs.lines("out.jsonl")
    key = f"{measured['_ng_rollout_id']}-a1"
    assert (measured["_ng_attempt_index"], measured["ng_model_call_capture"]["rollout_id"]) == (1, key)
    assert measured["ng_model_call_capture"]["gaps"] == []
    assert [call.complete for call in saved(runs)[key]] == [True, True]
    runs.check_nothing_left()


def test_a_call_whose_end_cannot_be_written_is_answered_all_the_same(runs: GymRuns) -> None:
    started = in_its_second_call(runs, {"say": "Done.", "sleep": 2}, 1)
    model_server(runs).rlimit(psutil.RLIMIT_FSIZE, (1, 1))  # no file of its may grow any more
    assert started.ended(60) == 0, started.errors
    (measured,) = runs.lines("out.jsonl")
    assert measured["reward"] == 1.0
    assert measured["response"]["output"][-1]["content"][0]["text"] == "Done."
    gaps = measured["ng_model_call_capture"]["gaps"]
    assert {gap["code"] for gap in gaps} == {"model_call_capture_incomplete"}
    assert gaps[0]["detail"] == "the end of call 1 could not be written: File too large"
    first, second = saved(runs)[measured["_ng_rollout_id"]]
    assert (first.complete, second.status) == (True, None)
    runs.check_nothing_left()
