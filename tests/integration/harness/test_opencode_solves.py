"""The real OpenCode, told by a script what to do, solves a task with its own tools."""

import json
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


PRY = """
import json, os, urllib.error, urllib.parse, urllib.request
options = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["provider"]["gym"]["options"]
parts = urllib.parse.urlsplit(options["baseURL"])
root = f"{parts.scheme}://{parts.netloc}"
said = {}
for path in ("/run", "/seed_session", "/verify", "/close_session", "/drain", "/v1/agent_sessions", "/v1/capture/close",
             parts.path + "/capture/close", "/ng-rollout/another/v1/chat/completions", "/v1/chat/completions"):
    request = urllib.request.Request(root + path, b"{}", {"authorization": "Bearer " + options["apiKey"]}, method="POST")
    try:
        said[path] = urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        said[path] = error.code
print(json.dumps(said))
"""


def test_a_task_is_solved(harness: Any) -> None:
    scripts = {
        "mend it": [*SOLVE, {"think": "It is done.", "say": "Mended."}],
        "delegate": [
            {"call": "task", "arguments": {"description": "part", "prompt": "sub-task", "subagent_type": "general"}},
            {"say": "Delegated."},
        ],
        "pry": [{"call": "bash", "arguments": {"command": f"python3 - <<'X'{PRY}X", "description": "pry"}}, {"say": "Tried."}],
    }
    below: list[dict[str, Any]] = [
        {"call": "bash", "arguments": {"command": "echo from below", "description": "x"}},
        {"think": "Hm.", "say": "Done below."},
    ]
    started = harness.begin(scripts, rules=[{"when": "^sub-task$", "steps": below}])
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
    (child,) = rows["delegate"]["ng_agent_observations"]["subagents"]
    assert [item["type"] for item in child["output"]] == ["function_call", "function_call_output", "reasoning", "message"]
    assert child["output"][1]["output"] == "from below\n"

    # With all that it has, code in the sandbox opens nothing but its own model calls; and it was told nothing of the grader.
    said = json.loads(rows["pry"]["response"]["output"][1]["output"])
    assert len(said) == 10
    assert set(said.values()) <= {401, 404}, said
    told = json.dumps([row["response"] for row in rows.values()])
    assert not [test for test in json.loads(harness.row["FAIL_TO_PASS"]) if test in told]
