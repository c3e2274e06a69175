"""The example recipes that a newcomer tries first: they resolve the example task with no model and no key."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import GymRuns

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("name", ["opencode", "hermes"])
def test_the_example_task_is_resolved(docker_engine: None, bundles: Callable[[str], Any], runs: GymRuns, name: str) -> None:
    bundles(f"{name}_agent")
    output = runs.folder / "out.jsonl"
    started = runs.begin(
        *("eval", "run", "--config", f"benchmarks/swebench/verified/{name}_example.yaml", "--output", output),
        *("--input", "resources_servers/swebench/data/example.jsonl", "--limit", "1", "--num-repeats", "1", "--attempts", "1"),
    )
    assert started.ended(240) == 0, started.errors
    (row,) = runs.lines("out.jsonl")
    assert (row["instance_id"], row["reward"]) == ("gym-test__calc-1", 1.0)
    runs.check_nothing_left()
