"""The shipped recipes with the real Hermes: in the contract's order, one sandbox after the other, and nothing left."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from gym.harness.bundle import Built
from tests.integration.conftest import GymRuns
from tests.integration.harness.test_hermes_solves import solve
from tests.integration.harness.test_opencode_recipes import BOXES, ORDER, OVERLAY, calls, example, task
from tests.integration.swe.gym_runs import boxes, skip_without_environment, watched

pytestmark = [pytest.mark.docker, pytest.mark.slow]

RECIPES = {"verified": "/testbed", "pro": "/app"}


def test_the_recipes(docker_engine: None, bundles: Callable[[str], Built], runs: GymRuns) -> None:
    """Both in one run, whose rows find their environment servers by their tasksets; Hermes' own tools mend the small task."""
    bundles("hermes_agent")
    rules = [{"when": rf"{root} has[\s\S]*left to right", "steps": [*solve(root), {"say": "Mended."}]} for root in RECIPES.values()]
    recipes = "\n".join(f"- benchmarks/swebench/{name}/hermes.yaml" for name in RECIPES)
    overlay = runs.write("overlay.yaml", OVERLAY.format(recipes=recipes, rules=json.dumps(rules), more=""))
    tasks = [task(example(f"swebench_{name}"), f"swebench:{name}") for name in RECIPES]
    logs = runs.folder / "logs"
    arguments = ["--config", overlay, "--input", runs.rows(*tasks), "--output", runs.folder / "out.jsonl"]
    with watched() as events:
        started = runs.begin("eval", "run", *arguments, "--attempts", "1", f"log_dir={logs}")
        code = started.ended(280)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    done: dict[str, dict[str, Any]] = {row["_ng_task_id"]["taskset"]: row for row in runs.lines("out.jsonl")}
    assert len(done) == 2
    for name in RECIPES:
        row, prefix = done[f"swebench:{name}"], f"swebench_{name}_hermes"
        assert (row["reward"], row["resolved"], row["evaluation_completed"], row["mask_sample"]) == (1.0, True, True, False)
        assert row["ng_agent_observations"]["harness"] == "Hermes"
        assert re.findall(r"^diff --git a/(\S+)", row["model_patch"], re.MULTILINE) == ["calc/evaluate.py"]
        assert calls(logs, (f"{prefix}_resources_server", f"{prefix}_agent")) == [(route, "200") for route in ORDER], name
        made = [what for where, what in events if where == f"{row['_ng_run_id']}/{prefix}_resources_server"]
        assert made == ([*BOXES, *BOXES[2:]] if name == "pro" else BOXES), "Pro's parser has a sandbox of its own"
        assert boxes(row["_ng_run_id"]) == []
    runs.check_nothing_left()
