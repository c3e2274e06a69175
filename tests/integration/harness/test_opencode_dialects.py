"""The real OpenCode on the model server's other dialects, each streamed through the client that it brings for it."""

from typing import Any

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_a_dialect(harness: Any, dialect: str) -> None:
    calls = [{"name": "bash", "arguments": {"command": f"echo {word}", "description": "x"}} for word in ("one", "two")]
    scripts = {"say it": [{"think": "Two at once.", "calls": calls}, {"say": "Said."}]}
    started = harness.begin(scripts, agent={"model_api": dialect})
    assert started.ended(150) == 0, (started.errors, harness.outcomes())
    response = harness.outcomes()[0]["say it"]["response"]
    output, capture = response["output"], harness.outcomes()[0]["say it"]["ng_model_call_capture"]
    assert {call["dialect"] for call in capture["calls"]} == {dialect}
    assert [item["output"] for item in output if item["type"] == "function_call_output"] == ["one\n", "two\n"]
    assert [item["type"] for item in output][-1] == "message"
    thoughts = [item["content"][0]["text"] for item in output if item["type"] == "reasoning"]
    assert thoughts == ([] if dialect == "responses" else ["Two at once."]), "of Responses its client reads summaries alone"
    assert response["usage"]["input_tokens"] == capture["metrics"]["tokens_in"] > 0
