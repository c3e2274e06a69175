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
    print(rows["delegate"])
