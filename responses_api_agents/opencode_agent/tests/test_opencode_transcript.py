"""OpenCode's events as Responses items, and what its end comes to."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.harness.adapter import Ending, Transcript
from responses_api_agents.opencode_agent.transcript import read_transcript

OK = Ending(0, 1.0)


def step(*parts: dict[str, Any], reason: str = "tool-calls", tokens: int = 10) -> list[dict[str, Any]]:
    counted = {"input": tokens, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    ended = {"type": "step_finish", "part": {"type": "step-finish", "reason": reason, "tokens": counted}}
    return [{"type": "step_start", "sessionID": "ses_1", "part": {}}, *parts, ended]


def said(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "part": {"type": kind, "id": "prt_1", "text": text}}


def tool(call_id: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool_use", "part": {"type": "tool", "id": f"prt_{call_id}", "callID": call_id, "tool": "bash", "state": state}}


def error(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"name": name, "data": data}}


def read(folder: Path, *events: dict[str, Any], ending: Ending | None = OK, tail: bytes = b"") -> Transcript:
    (folder / "stdout").write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events) + tail)
    return read_transcript(folder, ending)


def test_items_stand_in_the_order_of_the_model(tmp_path: Path) -> None:
    first = tool("c1", status="completed", input={"command": "ls"}, output="a\n")
    second = tool("c2", status="error", input={"command": "x"}, error="it failed")
    found = read(tmp_path, *step(said("hm", "reasoning"), said("I look."), first, second), *step(said("Done."), reason="stop"))
    assert [item["type"] for item in found.items] == [
        *("reasoning", "message", "function_call", "function_call", "function_call_output", "function_call_output", "message")
    ]
    assert [(item["call_id"], item["arguments"]) for item in found.items[2:4]] == [("c1", '{"command":"ls"}'), ("c2", '{"command":"x"}')]
    assert [(item["call_id"], item["output"]) for item in found.items[4:6]] == [("c1", "a\n"), ("c2", "it failed")]
    assert (found.outcome, found.reason) == ("completed", "")
    assert found.observations == {"session": "ses_1", "steps": 2, "finish": "stop", "tokens": {"input": 20, "output": 2, "reasoning": 0}}


REJECTED = tool("c1", status="error", input={}, error="The user rejected permission to use this specific tool call.")


@pytest.mark.parametrize(
    ("events", "ending", "expected"),
    [
        (step(said("Done."), reason="stop"), Ending(1, 1.0, "Boom"), ("failed", "ended with exit code 1: Boom")),
        (step(said("half"), reason="length"), OK, ("incomplete", "max_output_tokens")),
        (step(reason="content-filter"), OK, ("incomplete", "content_filter")),
        (step(REJECTED), OK, ("incomplete", "permission_rejected")),
        (
            step(tool("c1", status="completed", input={}, output="")),
            OK,
            ("failed", "ended in the midst of its work (last step: tool-calls)"),
        ),
        ([], OK, ("failed", "ended in the midst of its work (last step: none)")),
        ([error("ContextOverflowError", message="too long")], Ending(1, 1.0), ("incomplete", "context_overflow")),
        ([error("APIError", message="no", statusCode=500)], Ending(1, 1.0), ("failed", "ended with APIError 500: no")),
        ([error("UnknownError")], OK, ("failed", "ended with UnknownError: no reason given")),
        (step(said("Done."), reason="stop"), None, ("incomplete", "agent_closed")),
        (step(said("Done."), reason="stop"), Ending(124, 9.0, stopped="agent_timeout"), ("incomplete", "agent_timeout")),
        (step(said("Done."), reason="stop"), Ending(-1, 9.0, stopped="transcript_limit"), ("incomplete", "transcript_limit")),
    ],
)
def test_how_it_ended(tmp_path: Path, events: list[dict[str, Any]], ending: Ending | None, expected: tuple[str, str]) -> None:
    found = read(tmp_path, *events, ending=ending)
    assert (found.outcome, found.reason) == expected


@pytest.mark.parametrize(("code", "terminal"), [(401, True), (403, True), (429, False), (500, False)])
def test_a_refusal_is_final(tmp_path: Path, code: int, terminal: bool) -> None:
    assert read(tmp_path, error("APIError", statusCode=code), ending=Ending(1, 1.0)).terminal is terminal


def test_whatever_the_sandbox_wrote_can_be_read(tmp_path: Path) -> None:
    odd: list[Any] = [
        {"type": "reasoning", "part": {"type": "reasoning"}},
        {"type": "text", "part": None},
        {"type": "text", "part": {"type": "text"}},
        {"type": "tool_use", "part": {"type": "tool", "state": "x"}},
        {"type": "step_finish", "part": {"type": "step-finish", "tokens": [1]}},
        {"type": "error", "error": "boom"},
        {"type": 3},
        [],
        "x",
        None,
    ]
    found = read(tmp_path, *odd, ending=None, tail=b'\xff\xfe not json\n{"type":"text","part":{"te')
    assert found.observations["unreadable_lines"] == 5
    assert [item["type"] for item in found.items] == ["function_call", "function_call_output"]
    assert read_transcript(tmp_path / "none", None).items == []
