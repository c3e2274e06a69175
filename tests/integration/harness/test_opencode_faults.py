"""What becomes of an episode when OpenCode or its model fails half-way: measured or failed, and nothing left."""

from typing import Any

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def bash(command: str, **more: Any) -> dict[str, Any]:
    """A step that calls OpenCode's bash tool."""
    return {"call": "bash", "arguments": {"command": command, "description": "work", **more}}


def test_what_ends_a_run_decides_whether_it_is_graded(harness: Any) -> None:
    scripts = {
        "too many calls": [bash(f"echo {number} >> notes") for number in range(9)],
        "no word in the end": [{"say": "I was about to", "finish_reason": "length"}],
        "asks": [bash("ask-me now"), {"say": "never said"}],
        "denied": [bash("pkill python"), {"say": "I could not."}],
        "refused": [bash("echo x >> notes"), {"status": 401}],
        "never answered": [bash("(setsid sleep 400 &); echo x >> notes"), {"hang": True}],
    }
    permission = {"*": "allow", "bash": {"*": "allow", "ask-me*": "ask", "pkill*": "deny"}}
    limits = {"never answered": {"agent_timeout_seconds": 60}}
    started = harness.begin(scripts, agent={"permission": permission}, fields=limits, max_calls_per_rollout=6)
    assert started.ended(250) == 76, started.errors
    rows, failures = harness.outcomes()

    ends = {
        name: (row["response"]["status"], (row["response"].get("incomplete_details") or {}).get("reason")) for name, row in rows.items()
    }
    assert ends == {
        "too many calls": ("incomplete", "agent_closed"),
        "no word in the end": ("incomplete", "max_output_tokens"),
        "asks": ("incomplete", "permission_rejected"),
        "denied": ("completed", None),
        "never answered": ("incomplete", "agent_closed"),
    }
    assert {(row["reward"], row["mask_sample"]) for row in rows.values()} == {(0.0, False)}
    assert rows["too many calls"]["agent_budget_exhausted"] is True
    assert len(rows["too many calls"]["response"]["output"]) == 12, "the transcript up to the refusal"
    assert rows["never answered"]["agent_timed_out"] is True
    assert [item["type"] for item in rows["never answered"]["response"]["output"]] == ["function_call", "function_call_output"]
    assert "prevents you from using" in rows["denied"]["response"]["output"][1]["output"]

    refused = failures.pop("refused")
    assert not failures
    assert (refused["_ng_failure_kind"], refused["_ng_failure_terminal"]) == ("agent_run_error", True)
    assert refused["_ng_failure_message"].endswith("OpenCode ended with APIError 401: the script answers 401")
    assert len(refused["_ng_failure_partial_response"]["output"]) == 2
