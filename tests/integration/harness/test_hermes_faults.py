"""What becomes of an episode when Hermes or its model fails half-way: measured or failed, and nothing left."""

from typing import Any

import pytest

from tests.integration.harness.test_hermes_solves import terminal

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.parametrize("harness", ["hermes_agent"], indirect=True)]


def test_what_ends_a_run_decides_whether_it_is_graded(harness: Any) -> None:
    scripts = {
        "too many turns": [*(terminal(f"echo {number} >> notes") for number in range(4)), {"say": "So far."}],
        "no word in the end": [{"say": "I was about to", "finish_reason": "length"}],
        "refused": [terminal("echo x >> notes"), {"status": 401}],
        "broken": [terminal("echo x >> notes"), {"status": 500}],
        "never answered": [terminal("(setsid sleep 400 &); echo done"), {"hang": True}],
        "silence": [{"hang": True}],
        "works too long": [terminal("echo one"), terminal("echo two; sleep 400", timeout=500)],
    }
    go_on = {"when": "Your previous response was truncated", "steps": [{"say": "to say", "finish_reason": "length"}] * 9}
    limits = {name: {"agent_timeout_seconds": 45} for name in ("never answered", "silence", "works too long")}
    started = harness.begin(scripts, rules=[go_on], agent={"max_turns": 4}, fields=limits)
    assert started.ended(280) == 76, started.errors
    rows, failures = harness.outcomes()
    ends = {
        name: (row["response"]["status"], (row["response"].get("incomplete_details") or {}).get("reason")) for name, row in rows.items()
    }
    assert ends == {
        "too many turns": ("incomplete", "max_turns"),
        "no word in the end": ("incomplete", "max_output_tokens"),
        "never answered": ("incomplete", "agent_closed"),
        "works too long": ("incomplete", "agent_closed"),
    }
    assert {(row["reward"], row["mask_sample"]) for row in rows.values()} == {(0.0, False)}
    assert [rows[name]["agent_timed_out"] for name in ("never answered", "works too long")] == [True, True]
    called = {name: [item["type"] for item in row["response"]["output"]] for name, row in rows.items()}
    assert called["never answered"] == ["function_call", "function_call_output"]
    assert called["works too long"] == ["function_call", "function_call_output", "function_call"], "what it was at when it was stopped"
    assert called["too many turns"] == [*("function_call", "function_call_output") * 4, "message"]

    silence = failures.pop("silence")
    assert silence["_ng_failure_kind"] == "model_failed"
    assert "its model had not answered a single call" in silence["_ng_failure_message"]
    messages = {name: (failure["_ng_failure_kind"], failure["_ng_failure_terminal"]) for name, failure in failures.items()}
    assert messages == {"refused": ("agent_run_error", True), "broken": ("agent_run_error", False)}
    assert failures["refused"]["_ng_failure_message"].endswith("Hermes ended with HTTP 401: the script answers 401")
    assert failures["broken"]["_ng_failure_message"].endswith("Hermes ended with HTTP 500: the script answers 500")
    for failure in failures.values():
        assert len(failure["_ng_failure_partial_response"]["output"]) == 2


def test_a_toolset_that_gives_no_tool_there_is_not_measured(harness: Any) -> None:
    started = harness.begin({"search": [{"say": "I have found it."}]}, agent={"toolsets": ["terminal", "web"]})
    assert started.ended(120) == 76, started.errors
    rows, failures = harness.outcomes()
    assert not rows
    assert (failures["search"]["_ng_failure_kind"], failures["search"]["_ng_failure_terminal"]) == ("agent_run_error", True)
    assert failures["search"]["_ng_failure_message"].endswith("Hermes ended with no tool of these toolsets works here: web")
