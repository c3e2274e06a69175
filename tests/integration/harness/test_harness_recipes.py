"""The shipped recipes with the real harnesses: in the contract's order, one sandbox after the other, and nothing left."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym.harness.bundle import Built
from tests.integration.conftest import REPOSITORY, GymRuns
from tests.integration.harness.test_hermes_solves import solve as hermes_steps
from tests.integration.harness.test_opencode_solves import SOLVE as opencode_steps
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


def first_row(server: str) -> dict[str, Any]:
    """The small test task of a SWE server, as it is told to an agent."""
    with (REPOSITORY / f"resources_servers/{server}/data/example.jsonl").open() as lines:
        return json.loads(next(lines))


@pytest.mark.parametrize(
    ("benchmark", "name", "server", "steps"),
    [
        ("verified", "opencode", "swebench", opencode_steps),
        ("verified", "hermes", "swebench", hermes_steps("/testbed")),
        ("pro", "hermes", "swebench_pro", hermes_steps("/app")),
    ],
    ids=["verified/opencode", "verified/hermes", "pro/hermes"],
)
def test_a_recipe(
    docker_engine: None, bundles: Callable[[str], Built], runs: GymRuns, benchmark: str, name: str, server: str, steps: list[dict[str, Any]]
) -> None:
    bundles(f"{name}_agent")
    prefix, logs = f"swebench_{benchmark}_{name}", runs.folder / "logs"
    rules = json.dumps([{"when": "left to right", "steps": [*steps, {"say": "Mended."}]}])
    overlay = runs.write("overlay.yaml", OVERLAY.format(recipe=f"benchmarks/swebench/{benchmark}/{name}.yaml", rules=rules))
    with watched() as events:
        arguments = ["--config", overlay, "--input", runs.rows(first_row(server)), "--output", runs.folder / "out.jsonl"]
        environment = f"{prefix}_environment_server"
        started = runs.begin(
            *("eval", "run", *arguments, "--env", environment, "--attempts", "1", f"log_dir={logs}", "isolation=process"),
        )
        code = started.ended(250)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    (row,) = runs.lines("out.jsonl")
    assert (row["reward"], row["resolved"], row["evaluation_completed"], row["mask_sample"]) == (1.0, True, True, False)
    assert re.findall("^diff --git a/(\\S+)", row["model_patch"], re.MULTILINE) == ["calc/evaluate.py"]
    called = calls(logs)
    assert called[:-2] == [(route, "200") for route in ORDER[:-2]]
    assert {*called[-2:]} == {(route, "200") for route in ORDER[-2:]}, "two servers write the last two down at the same time"
    instance = f"{row['_ng_run_id']}/{prefix}_resources_server"
    assert [what for where, what in events if where == instance] == [
        *("create task", "destroy task"),
        *("create verifier", "destroy verifier") * (2 if benchmark == "pro" else 1),  # Pro's parser has a sandbox of its own
    ]
    assert boxes(row["_ng_run_id"]) == []
    runs.check_nothing_left()
