"""The real BenchAgent of NOOA's, told by a script what to do, solves a task in its container."""

from typing import Any

import pytest

from tests.integration.swe.gym_runs import skip_without_environment

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.parametrize("harness", ["nooa_agent"], indirect=True)]


def python(code: str) -> dict[str, Any]:
    """A step that has the agent run Python."""
    return {"call": "execute_python", "arguments": {"code": code}}


def shell(command: str) -> dict[str, Any]:
    """A step that has the agent's Python run a command."""
    return python(f"r = await self.shell.run({command!r})\nprint(r)")


def apply(patch: str) -> dict[str, Any]:
    """A step that has the agent edit as the patch does."""
    return python(f"await self.shell.write_file('/tmp/mend.diff', {patch!r})\nprint(await self.shell.run('git apply /tmp/mend.diff'))")


def returns(text: str = "Mended.") -> dict[str, Any]:
    """The step that ends the agent."""
    result = {"solution_description": text, "evidence": "it was run", "command_to_verify": "true"}
    return {"call": "return_result", "arguments": {"result": result}}


AGENT = {"timeout": 200}
STEPS = "++box.resources_servers.calc_swe.setup_timeout=60"
"""So that the times fit into that of the small task's sandbox."""
PRY = "import os\nprint('GIVEN', [name for name in os.environ if 'NOOA' in name])\nprint(await self.shell.run('env | grep -c NOOA'))"


def test_a_task_is_solved(harness: Any) -> None:
    scripts = {
        "mend it": [shell("git status --short"), apply(harness.row["patch"]), shell("git diff --stat"), returns()],
        "pry": [python(PRY), returns("Tried.")],
        "no more calls": [shell(f"echo {number} >> notes") for number in range(9)],
        "never answered": [shell("(setsid sleep 400 >/dev/null 2>&1 &) ; echo x >> notes"), {"hang": True}],
        "works too long": [python("import time\nwhile True:\n    time.sleep(1)")],
        "refused": [shell("echo x >> notes"), {"status": 401}],
        "broken": [shell("echo x >> notes"), {"status": 500}],
        "is killed": [shell("echo x >> notes"), shell("kill -9 $PPID")],
        "errs": [python("raise ValueError('mine')"), python("1 +"), returns("So.")],
    }
    limits = {name: {"agent_timeout_seconds": 25} for name in ("never answered", "works too long")}
    started = harness.begin(scripts, "--concurrency", "8", STEPS, agent={**AGENT, "max_policy_calls": 4}, fields=limits)
    code = started.ended(280)
    skip_without_environment(started.errors)
    assert code == 76, (started.errors, harness.outcomes())
    rows, failures = harness.outcomes()

    row = rows["mend it"]
    assert (row["reward"], row["resolved"], row["mask_sample"]) == (1.0, True, False), row["test_output"][-2000:]
    assert row["model_patch"].startswith("diff --git a/calc/evaluate.py"), "nothing of NOOA's is in the work tree"
    assert [item["type"] for item in row["response"]["output"]] == [*("function_call", "function_call_output") * 4, "message"]
    assert "evaluate.py | " in row["response"]["output"][5]["output"]
    observed, captured = row["ng_agent_observations"], row["ng_model_call_capture"]["metrics"]
    assert (observed["execution_mode"], len(observed["python_executions"]), observed["return_code"]) == ("sandboxed", 4, 0)
    assert (captured["num_calls"], captured["num_failed_calls"]) == (4, 0)
    assert row["response"]["usage"]["input_tokens"] == captured["tokens_in"]
    assert [len(turn["model_calls"]) for turn in row["ng_trajectory"]["turns"]] == [1, 1, 1, 1]

    pried = rows["pry"]["response"]["output"][1]["output"]
    assert "GIVEN []" in pried, "neither the agent nor what it starts inherits the access"
    assert "stdout='0\\n'" in pried or "\n0\n" in pried or "'0" in pried, pried
    assert "ValueError: mine" in rows["errs"]["response"]["output"][1]["output"]
    assert rows["errs"]["response"]["status"] == "completed"

    cut_short = {name: row["response"] for name, row in rows.items() if row["response"]["status"] != "completed"}
    ends = {name: response["incomplete_details"]["reason"] for name, response in cut_short.items()}
    assert ends == {"no more calls": "agent_budget_exhausted", "never answered": "agent_closed", "works too long": "agent_closed"}
    assert {(rows[name]["reward"], rows[name]["mask_sample"]) for name in ends} == {(0.0, False)}
    assert rows["no more calls"]["ng_model_call_capture"]["metrics"]["num_calls"] == 4
    # A hard kill keeps what was recorded by then: all but the end of what it was at.
    assert rows["works too long"]["ng_agent_observations"]["python_cut_short"] == ["import time\nwhile True:\n    time.sleep(1)"]
    assert len(rows["never answered"]["response"]["output"]) == 2

    # A hard kill of the worker loses what was not recorded, which is the answer of the shell.
    killed = failures.pop("is killed")
    assert (killed["_ng_failure_kind"], killed["_ng_failure_terminal"]) == ("agent_run_error", False)
    assert "NOOA broke off with exit code 137" in killed["_ng_failure_message"]
    kept = [item["type"] for item in killed["_ng_failure_partial_response"]["output"]]
    assert kept == ["function_call", "function_call_output", "function_call"]

    messages = {name: (failure["_ng_failure_kind"], failure["_ng_failure_terminal"]) for name, failure in failures.items()}
    assert set(messages) == {"refused", "broken"}
    assert [messages[name][1] for name in ("refused", "broken")] == [True, False], messages
    for failure in failures.values():
        said = failure["_ng_failure_message"].partition("/v1/responses: ")[2]
        assert said.startswith("NOOA ended with the model answered"), said
        assert "reward" not in failure
        assert failure["_ng_failure_partial_response"]["output"]
