"""What becomes of an episode when OpenCode, its model or its sandbox fails half-way: measured, failed, and nothing left."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_for

UNKNOWN = "OpenCode launch outcome is unknown; cannot confirm termination"

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def bash(command: str, **more: Any) -> dict[str, Any]:
    """A step that calls OpenCode's bash tool."""
    return {"call": "bash", "arguments": {"command": command, "description": "work", **more}}


def test_a_sandbox_that_is_killed_is_never_verified(harness: Any) -> None:
    """After the fourth model call: the activation and the close fail with 500, nothing is verified, the task's session is closed."""
    logs = harness.runs.folder / "logs"
    work = [bash(f"echo {number} >> notes") for number in range(3)]
    started = harness.begin({"work": [*work, bash("sleep 200", timeout=300000)]}, f"log_dir={logs}", "isolation=process")
    answered = re.compile(r" POST /ng-rollout/0-0/v1/chat/completions (?:200|499) ")  # it leaves as the last event is out

    def four_calls() -> bool:
        log = logs / "policy_model.log"
        return log.exists() and len(answered.findall(log.read_text())) >= 4

    wait_for(four_calls, lambda: started.errors, 150)
    (box,) = harness.boxes()
    subprocess.run(["docker", "kill", box], capture_output=True, check=True, timeout=30)
    assert started.ended(120) == 76, started.errors
    rows, failures = harness.outcomes()
    assert not rows
    failure = failures["work"]
    assert failure["_ng_failure_class"] == "environment_server_failed"
    assert (failure["_ng_failure_stage"], failure["_ng_failure_terminal"]) == ("agent", False)
    assert failure["_ng_failure_message"].endswith(UNKNOWN)
    calls = re.findall(r"gym.access \w+ POST \S*?(/v1/responses|/v1/agent_sessions/close|/verify|/close_session) (\d+)", all_logs(logs))
    assert sorted(calls) == [
        ("/close_session", "200"),
        ("/v1/agent_sessions/close", "500"),
        ("/v1/responses", "500"),
    ]
    assert harness.boxes() == []


def all_logs(logs: Path) -> str:
    """What the agent and the task's server wrote down."""
    return "".join((logs / f"{name}.log").read_text() for name in ("agent", "box"))


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
