"""What Hermes' driver says as Responses items, and what its end comes to."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.harness.adapter import Ending, Transcript
from responses_api_agents.hermes_agent.transcript import read_transcript

OK = Ending(0, 1.0)
GOOD = {"completed": True, "failed": False, "turn_exit_reason": "text_response(finish_reason=stop)"}


def said(role: str, content: Any, agent: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "message", "agent": agent, "session": f"s{agent}", "message": {"role": role, "content": content, **more}}


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "limits": [], **fields}


def read(folder: Path, *events: Any, ending: Ending | None = OK, tail: bytes = b"") -> Transcript:
    (folder / "stdout").write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events) + tail)
    return read_transcript(folder, ending)


def test_items_stand_in_the_order_of_the_history(tmp_path: Path) -> None:
    calls = [call("c1", "terminal", '{"command":"ls"}'), call("c2", "patch", {"path": "x"})]
    found = read(
        tmp_path,
        said("user", "do it"),
        said("assistant", "I look.", tool_calls=calls, reasoning="hm"),
        said("tool", "a\n", tool_call_id="c1"),
        said("tool", [{"type": "text", "text": "b"}], tool_call_id="c2"),
        said("assistant", "below", agent=1),
        {"type": "compaction", "agent": 0},
        said("user", "[System: go on]"),
        said("assistant", "Done."),
        result(**GOOD, api_calls=2),
    )
    assert [item["type"] for item in found.items] == [
        *("reasoning", "message", "function_call", "function_call", "function_call_output", "function_call_output", "message")
    ]
    assert [(item["call_id"], item["arguments"]) for item in found.items[2:4]] == [("c1", '{"command":"ls"}'), ("c2", '{"path":"x"}')]
    assert [(item["call_id"], item["output"]) for item in found.items[4:6]] == [("c1", "a\n"), ("c2", "b")]
    assert (found.outcome, found.reason) == ("completed", "")
    seen = found.observations
    assert (seen["session"], seen["api_calls"], seen["compactions"], seen["told"]) == ("s0", 2, 1, ["[System: go on]"])
    assert [(child["session"], len(child["output"])) for child in seen["subagents"]] == [("s1", 1)]


@pytest.mark.parametrize(
    ("ended", "ending", "expected"),
    [
        (None, Ending(137, 1.0, "Killed"), ("failed", "broke off with exit code 137: Killed")),
        (result(failed=True, error="HTTP 500: no"), OK, ("failed", "ended with HTTP 500: no")),
        (result(failed=True, error="HTTP 500: Model generated invalid tool call"), OK, ("failed", None)),
        (result(completed=False), OK, ("failed", "ended with no reason given")),
        (result(completed=True, turn_exit_reason="local_processing_error(KeyError)"), OK, ("failed", None)),
        (result(completed=True, turn_exit_reason="partial_stream_recovery"), OK, ("failed", None)),
        (result(completed=False, turn_exit_reason="max_iterations_reached(90/90)"), OK, ("incomplete", "max_turns")),
        (result(failed=True, error="First response truncated due to output length limit"), OK, ("incomplete", "max_output_tokens")),
        (result(completed=False, partial=True, error="Response remained truncated after 4"), OK, ("incomplete", "max_output_tokens")),
        (result(failed=True, error="content_policy_blocked: no"), OK, ("incomplete", "content_filter")),
        (result(failed=True, error="Context length exceeded", limits=["compression_exhausted"]), OK, ("incomplete", "context_overflow")),
        (result(**GOOD), None, ("incomplete", "agent_closed")),
        (result(**GOOD), Ending(124, 9.0, stopped="agent_timeout"), ("incomplete", "agent_timeout")),
    ],
)
def test_how_it_ended(tmp_path: Path, ended: dict[str, Any] | None, ending: Ending | None, expected: tuple[str, str | None]) -> None:
    found = read(tmp_path, said("assistant", "x"), *([ended] if ended else []), ending=ending)
    assert (found.outcome, found.reason if expected[1] is not None else None) == expected


@pytest.mark.parametrize(("code", "terminal"), [(401, True), (403, True), (429, False), (500, False)])
def test_a_refusal_is_final(tmp_path: Path, code: int, terminal: bool) -> None:
    assert read(tmp_path, result(failed=True, error=f"HTTP {code}: no")).terminal is terminal


def test_whatever_the_sandbox_wrote_can_be_read(tmp_path: Path) -> None:
    odd: list[Any] = [
        {"type": "message", "agent": "x", "message": {}},
        {"type": "message", "message": None},
        {"type": "message", "message": {"role": "assistant", "tool_calls": [3, {"function": "x"}]}},
        {"type": "message", "message": {"role": "tool", "content": 3}},
        {"type": "message", "message": {"role": "user", "content": [None]}},
        {"type": "result", "limits": 3, "error": ["x"], "completed": "no"},
        {"type": 3},
        [],
        None,
    ]
    found = read(tmp_path, *odd, tail=b'\xff\xfe not json\n{"type":"message","message":{"te')
    assert found.observations["unreadable_lines"] == 6
    assert [item["type"] for item in found.items] == ["function_call", "function_call", "function_call_output"]
    assert read_transcript(tmp_path / "none", None).items == []
