"""The shipped recipes with the real OpenCode: in the contract's order, one sandbox after the other, and nothing left."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import GymRuns
from tests.integration.harness.test_opencode_solves import SOLVE
from tests.integration.swe.gym_runs import boxes, skip_without_environment, watched

pytestmark = [pytest.mark.docker, pytest.mark.slow]

OVERLAY = """
config_paths:
- {recipe}
- responses_api_models/scripted_model/configs/scripted_model.yaml
sandbox:
  docker: {{create: {{pull: never}}}}
policy_model:
  responses_api_models:
    scripted_model: {{rules: {rules}}}
"""
ORDER = [
    "/seed_session",
    "/v1/agent_sessions",
    "/v1/responses",
    "/v1/agent_sessions/close",
    "/verify",
    "/close_session",
    "/run",
]


def calls(logs: Path) -> list[tuple[str, str]]:
    """Route and status of every call but the model's, in the order in which they were answered."""
    found: list[tuple[str, str, str]] = []
    for log in logs.glob("*.log"):
        lines = re.findall(r"^(\S+) INFO gym.access \S+ POST (?:/ng-rollout/[^/]+)?(\S+) (\d+) ", log.read_text(), re.MULTILINE)
        found += [line for line in lines if line[1] in ORDER]
    return [(route, status) for _, route, status in sorted(found)]


def test_swebench_verified(docker_engine: None, opencode_bundle: Path, runs: GymRuns, swebench_row: dict[str, Any]) -> None:
    prefix, logs = "swebench_verified_opencode", runs.folder / "logs"
    rules = [{"when": "left to right", "steps": [*SOLVE, {"say": "Mended."}]}]
    overlay = runs.write("overlay.yaml", OVERLAY.format(recipe="benchmarks/swebench/verified/opencode.yaml", rules=json.dumps(rules)))
    with watched() as events:
        arguments = ["--config", overlay, "--input", runs.rows(swebench_row), "--output", runs.folder / "out.jsonl"]
        environment = f"{prefix}_environment_server"
        started = runs.begin(
            *("eval", "run", *arguments, "--env", environment, "--attempts", "1", f"log_dir={logs}", "isolation=process"),
        )
        code = started.ended(250)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    (row,) = runs.lines("out.jsonl")
    assert (row["reward"], row["resolved"], row["evaluation_completed"], row["mask_sample"]) == (1.0, True, True, False)
    assert "calc/evaluate.py" in row["model_patch"]
    assert calls(logs) == [(route, "200") for route in ORDER]
    instance = f"{row['_ng_run_id']}/{prefix}_resources_server"
    assert [what for where, what in events if where == instance] == [
        *("create task", "destroy task", "create verifier", "destroy verifier"),
    ]
    assert boxes(row["_ng_run_id"]) == []
    runs.check_nothing_left()
