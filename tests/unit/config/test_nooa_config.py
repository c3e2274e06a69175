"""What `gym env validate` says of NOOA's configuration: times that do not nest, with their sum; fields that are gone; references."""

from typing import Any

import pytest

from conftest import REPOSITORY
from gym.config import examine

RECIPE = REPOSITORY / "benchmarks/swebench/pro/nooa.yaml"
AGENT = "swebench_pro_nooa_agent.responses_api_agents.nooa_agent"
SERVER = "swebench_pro_nooa_resources_server.resources_servers.swebench_pro"
TURN = "swebench_pro_nooa_environment_server.environment_servers.single_agent_turn_legacy"


def said(*overrides: str) -> list[Any]:
    found = examine([RECIPE], list(overrides), model_type="scripted_model")
    return [problem for problem in found.problems if problem.severity == "error"]


def test_the_recipe_as_shipped_is_valid() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("override", "key", "message"),
    [
        (f"{AGENT}.timeout=21600", f"{AGENT}.timeout", "timeout 21600 s does not fit into its 21600 s"),
        (
            f"{TURN}.default_episode_timeout_seconds=21000",
            f"{TURN}.default_episode_timeout_seconds",
            "timeout 21420 s does not fit into its 21000 s",
        ),
        (
            f"{TURN}.cleanup_timeout_seconds=1200",
            f"{TURN}.cleanup_timeout_seconds",
            "episode 21600 + 3 × cleanup 1200 = 25200 s does not fit into ttl_s 25200 s",
        ),
        (
            f"++{SERVER}.setup_timeout=1830",
            f"{SERVER}.setup_timeout",
            "timeout 21420 + 2 × patch capture 1830 + stop 120 = 25200 s does not fit into ttl_s 25200 s",
        ),
    ],
)
def test_times_that_do_not_nest_are_refused_with_their_sum(override: str, key: str, message: str) -> None:
    (problem,) = said(override if override.startswith("+") else f"++{override}")
    assert (problem.rule, problem.key_path) == ("time-budget", key)
    assert message in f"{problem.message} — {problem.hint}"
    assert problem.hint


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "run_timeout_secs=2100",
            "is no field of nooa_agent any more — remove it, and set default_episode_timeout_seconds",
        ),
        ("nooa.init_kwargs.llm=mine", "'llm' is reserved"),
        ("nooa.agent_class=nooa_bench.BenchAgent", "write package.module:name"),
        ("nooa.execution_mode=docker", "is none of the values allowed here"),
        ("max_policy_calls=0", "greater than 0"),
    ],
)
def test_fields_that_cannot_be_are_refused(override: str, message: str) -> None:
    (problem,) = said(f"++{AGENT}.{override}")
    assert message in f"{problem.message} — {problem.hint}"
