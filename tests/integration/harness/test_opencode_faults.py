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
        "silence": [{"hang": True}],
        "only busy": [{"status": 429, "retry_after": 300}],
    }
    permission = {"*": "allow", "bash": {"*": "allow", "ask-me*": "ask", "pkill*": "deny"}}
    limits = {name: {"agent_timeout_seconds": 60} for name in ("never answered", "silence", "only busy")}
    started = harness.begin(scripts, "--concurrency", "4", agent={"permission": permission}, fields=limits, max_calls_per_rollout=6)
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

    unserved = {name: failures.pop(name) for name in ("silence", "only busy")}
    assert {failure["_ng_failure_kind"] for failure in unserved.values()} == {"model_failed"}
    assert "its model had not answered a single call" in unserved["silence"]["_ng_failure_message"]
    assert "model call(s) had failed: rate_limit: the script answers 429" in unserved["only busy"]["_ng_failure_message"]
    refused = failures.pop("refused")
    assert not failures
    assert (refused["_ng_failure_kind"], refused["_ng_failure_terminal"]) == ("agent_run_error", True)
    assert refused["_ng_failure_message"].endswith("OpenCode ended with APIError 401: the script answers 401")
    assert len(refused["_ng_failure_partial_response"]["output"]) == 2


OVERFLOW = "This model's maximum context length is 131072 tokens. However, your request has 140000 input tokens."
FULL = "head -c 600m /dev/zero > /tmp/full; echo full"


def test_a_model_that_fails_is_no_zero_and_one_that_overflows_is_asked_again(harness: Any) -> None:
    """Each after a first step that works, and that leaves a process behind."""
    work = bash("(setsid sleep 400 >/dev/null 2>&1 &) ; echo x >> notes")
    scripts: dict[str, list[dict[str, Any]]] = {
        "no model": [work, {"body": "<html>busy</html>"}],
        "busy": [work, {"status": 429, "retry_after": 1}],
        "broken": [work, {"status": 500}],
        "drops": [work, {"say": "half of what it says", "piece": 3, "breaks": "connection"}],
        "stumbles": [{"call": "bash", "arguments": "{no json"}, {"say": "So."}],
        "overflows": [work, {"status": 400, "error": OVERFLOW}],
        "refused": [work, {"status": 400}],
        "full": [bash(FULL), bash("echo y >> notes"), {"say": "It was full."}],
    }
    made_up = [{"when": "ontinue if you have next steps", "steps": [{"say": "Done."}]}, {"when": ".", "steps": [{"say": "A summary."}]}]
    box = '+box.resources_servers.calc_swe.sandbox_config.provider_options={tmpfs: {/tmp: "size=500m,exec"}}'
    started = harness.begin(scripts, "--concurrency", "8", box, rules=made_up)
    assert started.ended(280) == 76, started.errors
    assert "went away" not in started.errors, "a client that leaves behind the last event is no news"
    rows, failures = harness.outcomes()

    said = {name: row["response"]["output"][-1] for name, row in rows.items()}
    assert said["stumbles"]["content"][0]["text"] == "So."
    assert "JSON parsing failed" in rows["stumbles"]["response"]["output"][1]["output"]
    overflown = rows["overflows"]
    assert (overflown["response"]["status"], overflown["ng_agent_observations"]["compactions"]) == ("completed", 1)
    assert overflown["ng_agent_observations"]["errors"] == [f"ContextOverflowError: {OVERFLOW}"]
    texts = [item["content"][0]["text"] for item in overflown["response"]["output"] if item["type"] == "message"]
    assert not [text for text in texts if "ontinue if you have" in text], "what OpenCode tells itself is none of the model's words"

    assert {name: (failure["_ng_failure_kind"], failure["_ng_failure_terminal"]) for name, failure in failures.items()} == {
        "no model": ("model_failed", False),
        **dict.fromkeys(("busy", "broken", "drops", "refused", "full"), ("agent_run_error", False)),
    }
    reason = failures["no model"]["_ng_failure_message"]
    assert reason == (
        "policy_model: the last 20 model calls failed one after the other: upstream_error: the reply is no JSON object: '<html>busy</html>'"
    )
    assert failures["full"]["_ng_failure_message"].endswith("(the sandbox's disk is full)")
    for name, failure in failures.items():
        kinds = [item["type"] for item in failure["_ng_failure_partial_response"]["output"]]
        assert kinds[:2] == ["function_call", "function_call_output"], f"{name}: the transcript up to the failure"
        assert set(kinds[2:]) <= ({"message"} if name == "drops" else set()), f"{name}: half of a last message at most"
