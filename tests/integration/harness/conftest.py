"""Runs of the real OpenCode in real containers, on a network that leads to the model server alone; the model is scripted."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import EXAMPLES, REPOSITORY, unavailable
from gym.config.errors import UserError
from gym.harness.bundle import ensure
from responses_api_agents.opencode_agent.adapter import BUNDLE
from tests.integration.conftest import GymRuns, Started

CONFIG = """
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
- responses_api_agents/opencode_agent/configs/opencode_agent.yaml
- responses_api_models/scripted_model/configs/scripted_model.yaml
sandbox:
  docker: {{create: {{network: internal, pull: never}}}}
policy_model:
  responses_api_models:
    scripted_model: {model}
box:
  resources_servers:
    calc_swe:
      entrypoint: app.py
      allowed_agents: [opencode_agent]
      inconclusive_verification_retries: 0
      sandbox_config: {{ttl_s: 600, metadata: {{test: "{tag}"}}}}
agent:
  _inherit_from: opencode_agent
  responses_api_agents:
    opencode_agent: {agent}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      cleanup_timeout_seconds: 60
      default_episode_timeout_seconds: 300
"""


class HarnessRuns:
    """`gym eval run` of OpenCode on the small task, with what the model says."""

    def __init__(self, runs: GymRuns, row: dict[str, Any]) -> None:
        self.runs, self.row = runs, row

    def begin(
        self,
        scripts: dict[str, list[dict[str, Any]]],
        *arguments: str,
        agent: dict[str, Any] | None = None,
        fields: dict[str, Any] | None = None,
        rules: list[dict[str, Any]] | None = None,
        **model: Any,
    ) -> Started:
        """Begin a rollout for each script, by prompt; `agent` and `model` are settings of theirs, `fields` go into rows.

        `rules` tell the model what to say to prompts that OpenCode makes up.
        """
        rules = [*({"when": f"^{prompt}$", "steps": steps} for prompt, steps in scripts.items()), *(rules or [])]
        settings = json.dumps({"rules": rules, **model})
        self.runs.config.write_text(CONFIG.format(model=settings, tag=self.runs.tag, agent=json.dumps(agent or {})))
        rows = [
            {**self.row, "instance_id": prompt, "responses_create_params": {"input": prompt}, **(fields or {}).get(prompt, {})}
            for prompt in scripts
            if not prompt.startswith("sub-")  # told by another agent, not by a row
        ]
        return self.runs.eval(self.runs.rows(*rows), "--attempts", "1", "--concurrency", "3", *arguments)

    def outcomes(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Rows and failures, by prompt."""
        rows = {row["instance_id"]: row for row in self.runs.lines("out.jsonl")}
        return rows, {failure["_ng_task_id"]["task_id"]: failure for failure in self.runs.lines("out_failures.jsonl")}

    def boxes(self) -> list[str]:
        """The containers that there are."""
        command = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.meta.test={self.runs.tag}"]
        return subprocess.run(command, text=True, capture_output=True, check=True, timeout=30).stdout.split()


@pytest.fixture(scope="session")
def opencode_bundle() -> Path:
    """OpenCode in the cache, fetched if it is not there; runs of the tests take it from there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym"
    if shutil.which("npm") is None and not (cache / "harness" / BUNDLE.digest).exists():
        unavailable("there is no npm to fetch OpenCode with")
    try:
        return ensure(BUNDLE, cache, print)
    except UserError as error:
        unavailable(f"OpenCode could not be fetched: {error}")
        raise


@pytest.fixture
def busybox_image(docker_engine: None) -> str:
    """An image with a busybox and no C library."""
    tag = "gym-test/busybox:latest"
    built = subprocess.run(["bash", "scripts/build_busybox_image.sh", tag], cwd=REPOSITORY, text=True, capture_output=True, check=False)
    if built.returncode:
        unavailable(f"an image for tests could not be built: {built.stderr.strip()[-500:]}")
    return tag


@pytest.fixture
def harness(docker_engine: None, opencode_bundle: Path, runs: GymRuns, calc_row: dict[str, Any]) -> Iterator[HarnessRuns]:
    """Runs of OpenCode; no process, no container and no network may be left."""
    made = HarnessRuns(runs, calc_row)
    yield made
    runs.end()
    left = made.boxes()
    if left:
        subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False, timeout=60)
    assert not left, f"{len(left)} containers of the test are left over"
    runs.check_nothing_left()


@pytest.fixture
def swebench_row() -> dict[str, Any]:
    """The small test task as it is told to an agent."""
    with EXAMPLES.open() as lines:
        return json.loads(next(lines))
