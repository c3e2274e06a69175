"""The real OpenCode, told by a script what to do, solves a task with its own tools."""

from typing import Any

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow]

FILE = "/testbed/calc/evaluate.py"


def edit(old: str, new: str) -> dict[str, Any]:
    """A call of OpenCode's edit tool."""
    return {"name": "edit", "arguments": {"filePath": FILE, "oldString": old, "newString": new}}


SUM = """    if tokens and tokens[0] in "+-":
        operator = tokens.pop(0)
        right = _sum(tokens)
        return left"""
PRODUCT = """    if tokens and tokens[0] in "*/":
        operator = tokens.pop(0)
        right = _product(tokens)
"""

SOLVE: list[dict[str, Any]] = [
    {"call": "grep", "arguments": {"pattern": "tokens\\[0\\] in"}},
    {"call": "read", "arguments": {"filePath": FILE}},
    {
        "calls": [
            edit(SUM, SUM.replace("if", "while").replace("_sum", "_product").replace("return", "left =")),
            edit(PRODUCT, PRODUCT.replace("if", "while").replace("_product", "_atom")),
            edit('        return left * right if operator == "*"', '        left = left * right if operator == "*"'),
        ]
    },
    {"call": "bash", "arguments": {"command": "git diff --stat", "description": "look"}},
]


def test_a_task_is_solved(harness: Any) -> None:
    scripts = {
        "mend it": [*SOLVE, {"think": "It is done.", "say": "Mended."}],
        "delegate": [
            {"call": "task", "arguments": {"description": "part", "prompt": "sub-task", "subagent_type": "general"}},
            {"say": "Delegated."},
        ],
        "sub-task": [
            {"call": "bash", "arguments": {"command": "echo from below", "description": "x"}},
            {"think": "Hm.", "say": "Done below."},
        ],
    }
    started = harness.begin(scripts)
    assert started.ended(200) == 0, started.errors
    rows, failures = harness.outcomes()
    assert not failures
    row = rows["mend it"]
    assert (row["reward"], row["resolved"], row["mask_sample"]) == (1.0, True, False), row["test_output"][-2000:]
    output = row["response"]["output"]
    kinds = [item["type"] for item in output]
    assert kinds == [
        *("function_call", "function_call_output") * 2,
        *("function_call",) * 3,
        *("function_call_output",) * 3,
        *("function_call", "function_call_output"),
        *("reasoning", "message"),
    ]
    assert "Found 2 matches" in output[1]["output"], "ripgrep is there without a download"
    assert [item["output"] for item in output[7:10]] == ["Edit applied successfully."] * 3
    assert output[-2]["content"][0]["text"] == "It is done."
    for name, calls in (("mend it", 5), ("delegate", 4)):
        captured = rows[name]["ng_model_call_capture"]["metrics"]
        usage = rows[name]["response"]["usage"]
        assert (captured["num_calls"], captured["num_failed_calls"]) == (calls, 0)
        assert (usage["input_tokens"], usage["output_tokens"]) == (captured["tokens_in"], captured["tokens_out"])
    (below,) = rows["delegate"]["ng_agent_observations"]["subagents"]
    assert [item["type"] for item in below["output"]] == ["function_call", "function_call_output", "reasoning", "message"]
    assert below["output"][1]["output"] == "from below\n"
