"""The real Hermes, told by a script what to do, solves a task with its own tools."""

import json
from typing import Any

import pytest

from tests.integration.harness.test_opencode_solves import PRODUCT, SUM

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.parametrize("harness", ["hermes_agent"], indirect=True)]


def solve(root: str) -> list[dict[str, Any]]:
    """The steps that mend the small task below `root`."""
    path = f"{root}/calc/evaluate.py"

    def patch(old: str, new: str) -> dict[str, Any]:
        return {"name": "patch", "arguments": {"path": path, "old_string": old, "new_string": new}}

    return [
        {"call": "search_files", "arguments": {"pattern": "tokens\\[0\\] in", "path": root}},
        {"call": "read_file", "arguments": {"path": path}},
        {
            "calls": [
                patch(SUM, SUM.replace("if", "while").replace("_sum", "_product").replace("return", "left =")),
                patch(PRODUCT, PRODUCT.replace("if", "while").replace("_product", "_atom")),
                patch('        return left * right if operator == "*"', '        left = left * right if operator == "*"'),
            ]
        },
        terminal("git diff --stat"),
    ]


def terminal(command: str, **more: Any) -> dict[str, Any]:
    """A step that calls Hermes' terminal."""
    return {"call": "terminal", "arguments": {"command": command, **more}}


PRY = """
import json, os, re, urllib.error, urllib.parse, urllib.request
assert "OPENAI_API_KEY" not in os.environ, "Hermes keeps the token from commands"
found = {}
for pid in os.listdir("/proc"):
    try:
        lines = open(f"/proc/{pid}/environ").read().split("\\0") if pid.isdigit() else []
    except OSError:
        continue
    found.update(line.split("=", 1) for line in lines if line.startswith("OPENAI_"))
parts = urllib.parse.urlsplit(found["OPENAI_BASE_URL"])
root = f"{parts.scheme}://{parts.netloc}"
said = {}
for path in ("/run", "/seed_session", "/verify", "/close_session", "/drain", "/v1/agent_sessions", "/v1/capture/close",
             parts.path + "/capture/close", "/ng-rollout/another/v1/chat/completions", "/v1/chat/completions"):
    request = urllib.request.Request(root + path, b"{}", {"authorization": "Bearer " + found["OPENAI_API_KEY"]}, method="POST")
    try:
        said[path] = urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        said[path] = error.code
print(json.dumps(said))
"""


def output_of(item: dict[str, Any]) -> str:
    """What a terminal's result has as its output."""
    return json.loads(item["output"])["output"]


def test_a_task_is_solved(harness: Any) -> None:
    scripts = {
        "mend it": [*solve("/testbed"), {"think": "It is done.", "say": "Mended."}],
        "delegate": [
            {"call": "delegate_task", "arguments": {"goal": "sub-task", "context": "none"}},
            {"say": "Delegated."},
        ],
        "pry": [terminal(f"python3 - <<'X'{PRY}X"), {"say": "Tried."}],
        "too many calls": [terminal(f"echo {number} >> notes") for number in range(14)],
        "read much": [*(terminal(f"seq {number}000 {number}999; seq 5000 6000") for number in range(9)), {"say": "Read."}],
    }
    made_up = [
        {"when": "^sub-task$", "steps": [terminal("echo from below"), {"think": "Hm.", "say": "Done below."}]},
        {"when": ".", "steps": [{"say": "## Goal\nTo read."}]},  # for the history of "read much" to be compacted
    ]
    agent = {"toolsets": ["terminal", "file", "delegation"], "context_window": 64_000, "compaction_threshold": 0.3}
    started = harness.begin(scripts, rules=made_up, agent=agent, max_calls_per_rollout=12)
    assert started.ended(280) == 0, (started.errors, harness.outcomes())
    rows, failures = harness.outcomes()
    assert not failures
    row = rows["mend it"]
    assert (row["reward"], row["resolved"], row["mask_sample"]) == (1.0, True, False), row["test_output"][-2000:]
    assert set(row["model_patch"].split("diff --git ")[1:][0].split()[:2]) == {"a/calc/evaluate.py", "b/calc/evaluate.py"}
    output = row["response"]["output"]
    kinds = [item["type"] for item in output]
    assert kinds == [
        *("function_call", "function_call_output") * 2,
        *("function_call",) * 3,
        *("function_call_output",) * 3,
        *("function_call", "function_call_output"),
        *("reasoning", "message"),
    ]
    assert json.loads(output[1]["output"])["total_count"] == 2
    assert [json.loads(item["output"])["success"] for item in output[7:10]] == [True] * 3
    assert output[-2]["content"][0]["text"] == "It is done."
    for name, calls in (("mend it", 5), ("delegate", 4)):
        captured = rows[name]["ng_model_call_capture"]["metrics"]
        usage = rows[name]["response"]["usage"]
        assert (captured["num_calls"], captured["num_failed_calls"]) == (calls, 0)
        assert (usage["input_tokens"], usage["output_tokens"]) == (captured["tokens_in"], captured["tokens_out"])
    (below,) = rows["delegate"]["ng_agent_observations"]["subagents"]
    assert [item["type"] for item in below["output"]] == ["function_call", "function_call_output", "reasoning", "message"]
    assert output_of(below["output"][1]) == "from below"

    cut_short = rows["too many calls"]
    assert (cut_short["agent_budget_exhausted"], cut_short["reward"], cut_short["mask_sample"]) == (True, 0.0, False)
    assert (cut_short["response"]["status"], len(cut_short["response"]["output"])) == ("incomplete", 24), "all up to the refusal"

    compacted = rows["read much"]
    assert compacted["ng_agent_observations"]["compactions"] >= 1
    called = [item["call_id"] for item in compacted["response"]["output"] if item["type"] == "function_call"]
    assert len(called) == len(set(called)) > 4, "what stays in a compacted history is not said again"
    assert "[CONTEXT COMPACTION" not in json.dumps(compacted["response"]["output"])

    # With all that it has, code in the sandbox opens nothing but its own model calls; and it was told nothing of the grader.
    said = json.loads(output_of(rows["pry"]["response"]["output"][1]))
    assert len(said) == 10
    assert set(said.values()) <= {401, 404}, said
    told = json.dumps([row["response"] for row in rows.values()])
    assert not [test for test in json.loads(harness.row["FAIL_TO_PASS"]) if test in told]
