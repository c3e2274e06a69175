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
        "garbage": [bash("echo x >> notes"), {"body": "<html>bad gateway</html>"}],
        "broken": [bash("echo x >> notes"), {"say": "half of this", "breaks": "error"}],
    }
    permission = {"*": "allow", "bash": {"*": "allow", "ask-me*": "ask", "pkill*": "deny"}}
    started = harness.begin(scripts, agent={"permission": permission}, max_calls_per_rollout=6)
    print(started.ended(280), started.errors)
    rows, failures = harness.outcomes()
    for name, row in rows.items():
        print(
            name, row["reward"], row["response"].get("incomplete_details"), row.get("agent_budget_exhausted"), row["ng_agent_observations"]
        )
    for name, failure in failures.items():
        print(
            name,
            failure["_ng_failure_class"],
            failure["_ng_failure_terminal"],
            failure["_ng_failure_message"],
            len(failure["_ng_failure_partial_response"]["output"]),
        )
