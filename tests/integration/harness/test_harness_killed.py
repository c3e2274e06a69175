"""What becomes of an episode whose sandbox dies under a harness: failed, never verified, and nothing left."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_for
from tests.integration.harness.test_hermes_solves import terminal
from tests.integration.harness.test_opencode_faults import bash

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("harness", "step", "title"),
    [("opencode_agent", bash, "OpenCode"), ("hermes_agent", terminal, "Hermes")],
    indirect=["harness"],
    ids=["opencode", "hermes"],
)
def test_a_sandbox_that_is_killed_is_never_verified(harness: Any, step: Callable[..., dict[str, Any]], title: str) -> None:
    """After the fourth model call: the activation and the close fail with 500, nothing is verified, the task's session is closed."""
    logs = harness.runs.folder / "logs"
    work = [step(f"echo {number} >> notes") for number in range(3)]
    started = harness.begin({"work": [*work, step("sleep 200", timeout=300000)]}, f"log_dir={logs}", "isolation=process")
    answered = re.compile(r" POST /ng-rollout/0-0/v1/chat/completions (?:200|499) ")  # OpenCode leaves as the last event is out

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
    assert failure["_ng_failure_message"].endswith(f"{title} launch outcome is unknown; cannot confirm termination")
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
