"""What a worker's records come to."""

from typing import Any

import pytest

from gym.harness.adapter import Ending, Transcript
from responses_api_agents.nooa_agent.records import transcript_of


def call(call_id: str, name: str) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    return {"type": "model_call", "id": f"r-{call_id}", "output": [item], "usage": {"input_tokens": 1}, "seconds": 0.1}


def python(call_id: str | None, execution: str, **more: Any) -> list[dict[str, Any]]:
    begins = {"type": "python_begins", "execution": execution, "call_id": call_id, "code": f"code of {execution}"}
    return [begins, {"type": "python", "execution": execution, "call_id": call_id, "seconds": 0.1, **more}]


def read(*records: dict[str, Any] | None, ending: Ending | None = None) -> Transcript:
    return transcript_of(records, ending)


DONE = Ending(0, 1.0)


def test_python_and_tools_stand_apart_from_what_was_said() -> None:
    made = read(
        *python("prefill_1", "e0", stdout="the inputs"),
        call("c1", "execute_python"),
        python("c1", "e1")[0],
        {"type": "resource_call", "name": "count", "arguments": {"by": 1}, "status": 200, "output": "{}", "execution": "e1"},
        {"type": "cookies", "cookies": {"session": "2"}},
        python("c1", "e1", stdout="3\n", value="3", error="ValueError: no")[1],
        call("c2", "return_result"),
        {"type": "returned", "tool": "return_result", "error": None},
        {"type": "end", "outcome": "completed", "reason": "", "text": "It is 3.", "value": "It is 3."},
        ending=DONE,
    )
    assert (made.outcome, made.reason, made.cookies) == ("completed", "", {"session": "2"})
    assert [item["type"] for item in made.items] == [*("function_call", "function_call_output") * 2, "message"]
    assert made.items[1]["output"] == "3\n3\nValueError: no"
    assert [ran["code"] for ran in made.observations["python_executions"]] == ["code of e0", "code of e1"]
    assert [(used["name"], used["execution"]) for used in made.observations["resource_calls"]] == [("count", "e1")]
    assert made.trajectory is not None
    assert [len(turn["resource_calls"]) for turn in made.trajectory["turns"]] == [1, 0]


@pytest.mark.parametrize(
    ("records", "ending", "outcome", "reason"),
    [
        ([], None, "incomplete", "agent_closed"),
        ([], Ending(-9, 1.0, stopped="agent_timeout"), "incomplete", "agent_timeout"),
        ([], Ending(137, 1.0, stderr="Killed\n"), "failed", "broke off with exit code 137: Killed"),
        ([{"type": "end", "outcome": "incomplete", "reason": "agent_budget_exhausted"}], DONE, "incomplete", "agent_budget_exhausted"),
        (
            [{"type": "end", "outcome": "failed", "reason": "the model is gone", "terminal": True}],
            DONE,
            "failed",
            "ended with the model is gone",
        ),
        ([{"type": "end", "outcome": "splendid"}], DONE, "failed", "broke off with exit code 0: it said nothing"),
    ],
)
def test_ends(records: list[dict[str, Any]], ending: Ending | None, outcome: str, reason: str) -> None:
    made = read(*records, ending=ending)
    assert (made.outcome, made.reason) == (outcome, reason)


def test_what_was_cut_short_is_kept_and_nothing_that_was_written_breaks_it() -> None:
    odd: list[Any] = [None, {}, {"type": 3}, {"type": "model_call", "output": [7, {"no": "type"}, {"type": "message"}]}, {"type": "python"}]
    made = read(*odd, {"type": "cookies", "cookies": [1]}, {"type": "end"}, python("c", "e9")[0])
    assert made.observations["python_cut_short"] == ["code of e9"]
    assert made.observations["unreadable_lines"] == 3
    assert made.items == [{"type": "message"}]
