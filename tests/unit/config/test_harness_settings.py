"""What `gym env validate` says of harness settings that would otherwise be found out in a sandbox, or never."""

import pytest

from conftest import REPOSITORY
from gym.config import examine

FOLDER = REPOSITORY / "benchmarks/swebench/verified"


def said(recipe: str, setting: str) -> list[str]:
    agent = f"swebench_verified_{recipe}_agent.responses_api_agents.{recipe}_agent"
    found = examine([FOLDER / f"{recipe}.yaml"], [f"++{agent}.{setting}"], model_type="scripted_model")
    return [f"{problem.message} — {problem.hint}" for problem in found.problems if problem.severity == "error"]


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        ("hermes", "toolsets=[terminl]", "has no toolset 'terminl' — did you mean 'terminal'?"),
        ("hermes", "request_overrides={modle: 3}", "'modle' cannot be set for a model call"),
        ("hermes", "request_overrides={messages: []}", "'messages' cannot be set for a model call"),
        ("hermes", "max_output_tokens=200000", "200000 does not fit into context_window 131072"),
        ("opencode", "max_output_tokens=200000", "200000 does not fit into context_window 131072"),
        ("opencode", "permission={bash: maybe}", "bash: 'maybe' is no rule — write allow, ask or deny"),
        ("opencode", "permission={bash: {git: never}}", "bash: 'never' is no rule — write allow, ask or deny"),
        ("opencode", "context_window=100", "greater than or equal to 16000"),
    ],
)
def test_a_setting_that_cannot_work_is_named(recipe: str, setting: str, message: str) -> None:
    (found,) = said(recipe, setting)
    assert message in found


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("hermes", "toolsets=[terminal,file,todo]"),
        ("hermes", "request_overrides={extra_body: {top_k: 20}}"),
        ("opencode", "permission={bash: {ls: allow, git: deny}, webfetch: deny}"),
    ],
)
def test_a_setting_that_can_work_is_let_through(recipe: str, setting: str) -> None:
    assert said(recipe, setting) == []
