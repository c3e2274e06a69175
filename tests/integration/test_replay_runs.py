"""A run that was captured is played back without a model: the same rollouts come of it, and a changed prompt is refused and shown."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.conftest import REPOSITORY, GymRuns

ENVIRONMENT = "resources_servers/example_session_state_mgmt"
EXAMPLES = [orjson.loads(line) for line in (REPOSITORY / ENVIRONMENT / "data/example.jsonl").read_bytes().splitlines()]
ROLLOUTS = 2 * len(EXAMPLES)


def evaluate(runs: GymRuns, name: str, rows: Path, *arguments: str, expected: int = 0) -> list[dict[str, Any]]:
    """`gym eval run` of two repeats, four at once; its rows by rollout."""
    config = ("--config", f"{ENVIRONMENT}/configs/example_session_state_mgmt.yaml")
    given = ("--input", rows, "--output", runs.folder / f"{name}.jsonl", "--num-repeats", 2, "--concurrency", 4)
    code, _, errors = runs.run("eval", "run", *config, *given, *arguments)
    assert code == expected, errors
    return sorted(runs.lines(f"{name}.jsonl"), key=lambda row: row["_ng_rollout_id"])


def record(runs: GymRuns, rows: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of a run whose model calls are kept."""
    recorded = evaluate(runs, "recorded", rows, "--model-type", "scripted_model", "observability_enabled=true", *arguments)
    assert len(list((runs.folder / "recorded_model_calls").iterdir())) == len(recorded) == ROLLOUTS
    return recorded


def replaying(runs: GymRuns) -> tuple[str, str, str]:
    captures = runs.folder / "recorded_model_calls"
    return "--model-type", "replay_model", f"+policy_model.responses_api_models.replay_model.captures={captures}"


def check_the_same(recorded: list[dict[str, Any]], played: list[dict[str, Any]]) -> None:
    """The same came of it again: output items, calls and their arguments, usage, reward; even the model's ids are those recorded."""
    for one, other in zip(recorded, played, strict=True):
        assert one["response"] == other["response"]
        assert (one["reward"], one["final_count"]) == (other["reward"], other["final_count"]) == (1, one["expected_count"])
        calls = one["ng_model_call_capture"]["metrics"]["num_calls"]
        assert other["ng_model_call_capture"]["replay"] == {"calls_recorded": calls, "calls_played": calls}
        assert other["response"]["usage"]["total_tokens"] > 0
        assert {item["type"] for item in other["response"]["output"]} == {"function_call", "function_call_output", "message"}


def test_a_captured_run_is_played_back(runs: GymRuns) -> None:
    rows, isolated = runs.rows(*EXAMPLES), "isolation=colocated"
    recorded = record(runs, rows, isolated)
    check_the_same(recorded, evaluate(runs, "played", rows, *replaying(runs), isolated))
    runs.check_nothing_left()


@pytest.mark.parametrize("isolation", ["process", "colocated"])
def test_a_changed_prompt_is_refused_and_the_others_are_played(runs: GymRuns, isolation: str) -> None:
    """Another prompt, and another answer of a tool: each ends two rollouts at once."""
    isolated = f"isolation={isolation}"
    recorded = record(runs, runs.rows(*EXAMPLES), isolated)
    changed: list[dict[str, Any]] = orjson.loads(orjson.dumps(EXAMPLES))
    prompt: dict[str, Any] = changed[0]["responses_create_params"]["input"][0]
    before, prompt["content"] = prompt["content"], f"please {prompt['content']}"
    changed[1]["initial_count"] += 1
    played = evaluate(runs, "changed", runs.rows(*changed), *replaying(runs), isolated, expected=76)
    check_the_same([row for row in recorded if row["_ng_task_index"] > 1], played)
    failures = sorted(runs.lines("changed_failures.jsonl"), key=lambda row: row["_ng_rollout_id"])
    assert len(failures) == 4, "what differs is not tried again"
    assert {(row["_ng_failure_kind"], row["_ng_failure_terminal"]) for row in failures} == {("replay_model:request_differs", True)}
    said = [row["_ng_failure_message"] for row in failures]
    assert not any("\n" in line for line in said)
    count = EXAMPLES[1]["initial_count"] + 5 + 7
    for line in said[:2]:
        assert "call 0 of 0-" in line
        assert f'input[0].content: recorded "{before}", got "please {before}"' in line
    for line in said[2:]:
        assert "call 3 of 1-" in line
        assert rf'input[6].output: recorded "{{\"count\":{count}}}", got "{{\"count\":{count + 1}}}"' in line
    runs.check_nothing_left()


def test_captures_that_are_none_are_told_at_the_start(runs: GymRuns) -> None:
    config = f"{ENVIRONMENT}/configs/example_session_state_mgmt.yaml"
    code, _, errors = runs.run("eval", "run", "--config", config, *replaying(runs), "--output", runs.folder / "out.jsonl")
    assert (code, "_model_calls does not exist" in errors, "Traceback" in errors) == (1, True, False), errors
    assert len(errors.splitlines()) < 4, errors
