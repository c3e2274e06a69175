"""The example rows of every SWE server, from the clone alone: each gold patch resolves its task, and doing nothing resolves none."""

from pathlib import Path

import pytest

from tests.integration.swe.gym_runs import REPOSITORY, Gym, check_gold_and_nothing, read

pytestmark = [pytest.mark.docker, pytest.mark.slow]

EXAMPLES = {
    "swebench": ("swebench", "swebench:example"),
    "swebench_multilingual": ("swebench", "swebench:example_multilingual"),
    "swebench_pro": ("swebench_pro", "swebench:pro"),
    "swe_gym": ("swe_gym", "swe_gym"),
    "r2e_gym": ("r2e_gym", "r2e_gym"),
    "scale_swe": ("scale_swe", "scale_swe"),
}
"""Instances' prefix -> server and taskset."""


@pytest.mark.parametrize("prefix", EXAMPLES)
def test_gold_and_nothing(docker_engine: None, tmp_path: Path, prefix: str) -> None:
    server, taskset = EXAMPLES[prefix]
    config = f"resources_servers/{server}/configs/{prefix}_oracle.yaml"
    gold, solving, idling = check_gold_and_nothing(Gym(tmp_path), config, prefix, "--dataset", "example")
    name = "example_multilingual.jsonl" if prefix == "swebench_multilingual" else "example.jsonl"
    wanted = {row["instance_id"] for row in read(REPOSITORY / "resources_servers" / server / "data" / name)}
    assert len(wanted) == 5
    assert {row["instance_id"] for row in gold} == wanted
    assert {row["_ng_task_id"]["taskset"] for row in gold} == {taskset}
    graded = ["create verifier", "destroy verifier"] * (2 if prefix == "swebench_pro" else 1)  # one for the tests, one for its parser
    assert sorted(solving) == sorted(idling) == sorted(["create task", "destroy task", *graded] * 5), "doing nothing is tested too"


def test_a_script_of_the_package_in_another_language(docker_engine: None, tmp_path: Path) -> None:
    """The C task once more, as a row of Redis: with no script of its own, its build and tests are those that the package knows."""
    rows = read(REPOSITORY / "resources_servers/swebench/data/example_multilingual.jsonl")
    (ring,) = (row for row in rows if row["repo"] == "gym-test/ring")
    row = {name: value for name, value in ring.items() if name not in ("eval_script", "eval_type", "log_parser")}
    gym = Gym(tmp_path)
    config = "resources_servers/swebench/configs/swebench_multilingual_oracle.yaml"
    source = gym.rows(row | {"repo": "redis/redis", "version": "13115"})
    (gold,), _, _ = check_gold_and_nothing(gym, config, "swebench_multilingual", "--input", source)
    assert "./runtest --durable --single unit/scripting" in gold["test_output"]
    assert gold["test_count"] == 8
