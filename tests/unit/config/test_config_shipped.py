"""Every config that is shipped composes, and lacks nothing but what a user must give."""

from pathlib import Path

import pytest

from gym.config import examine
from gym.config.roots import INSTALL_ROOT
from gym.config.schema import KINDS

SERVERS = sorted(path for kind in KINDS for path in (INSTALL_ROOT / kind).glob("*/configs/*.yaml"))
OVERLAYS = sorted(
    path
    for folder in ("benchmarks", "nemotron_recipes")
    for path in (INSTALL_ROOT / folder).rglob("*.yaml")
    if path.name != "manifest.yaml" and "config_paths:" in path.read_text(encoding="utf-8")
)
GIVEN = ("policy_base_url=http://127.0.0.1:1/v1", "policy_api_key=x", "policy_model_name=m")
OPEN = {"missing-value", "missing-environment", "unknown-provider"}  # a server's own config is a part: the rest is the user's


@pytest.mark.parametrize("path", [*SERVERS, *OVERLAYS], ids=lambda path: str(path.relative_to(INSTALL_ROOT)))
def test_shipped_config(path: Path, tmp_path: Path):
    model = None if path.is_relative_to(INSTALL_ROOT / "responses_api_models") else "openai_model"
    examined = examine([path], GIVEN, model_type=model, roots=[INSTALL_ROOT], env={}, cwd=tmp_path)
    errors = [str(problem) for problem in examined.problems if problem.severity == "error" and problem.rule not in OPEN]
    assert errors == []
