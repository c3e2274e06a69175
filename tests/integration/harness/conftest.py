"""Runs of real harnesses in real containers, on a network that leads to the model server alone; the model is scripted."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, unavailable
from gym.config.errors import UserError
from gym.harness.bundle import Built, ensure
from responses_api_agents.hermes_agent.adapter import BUNDLE as HERMES
from responses_api_agents.nooa_agent.adapter import BUNDLE as NOOA
from responses_api_agents.opencode_agent.adapter import BUNDLE as OPENCODE
from tests.integration.conftest import GymRuns, Started

CONFIG = """
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
- responses_api_agents/{name}/configs/{name}.yaml
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
      allowed_agents: [{name}]
      inconclusive_verification_retries: 0
      sandbox_config: {{ttl_s: 600, metadata: {{test: "{tag}"}}}}
agent:
  _inherit_from: {name}
  responses_api_agents:
    {name}: {agent}
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
    """`gym eval run` of a harness on the small task, with what the model says."""

    def __init__(self, name: str, runs: GymRuns, row: dict[str, Any]) -> None:
        self.name, self.runs, self.row = name, runs, row

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

        `rules` tell the model what to say to prompts that the harness, or an agent of it, makes up.
        """
        rules = [*(self._rule(prompt, steps) for prompt, steps in scripts.items()), *(rules or [])]
        settings = json.dumps({"rules": rules, **model})
        self.runs.config.write_text(CONFIG.format(name=self.name, model=settings, tag=self.runs.tag, agent=json.dumps(agent or {})))
        rows = [
            {**self.row, "instance_id": prompt, "responses_create_params": {"input": prompt}, **(fields or {}).get(prompt, {})}
            for prompt in scripts
        ]
        return self.runs.eval(self.runs.rows(*rows), "--attempts", "1", "--concurrency", "3", *arguments)

    def _rule(self, prompt: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
        if self.name != "nooa_agent":
            return {"when": f"^{prompt}$", "steps": steps}
        # NOOA's last message is its agent's state, and a call of its own comes before the first of the model.
        return {"when": f"problem_statement='{prompt}'", "steps": [{"say": "never asked for"}, *steps]}

    def outcomes(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Rows and failures, by prompt."""
        rows = {row["instance_id"]: row for row in self.runs.lines("out.jsonl")}
        return rows, {failure["_ng_task_id"]["task_id"]: failure for failure in self.runs.lines("out_failures.jsonl")}

    def boxes(self) -> list[str]:
        """The containers that there are."""
        command = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.meta.test={self.runs.tag}"]
        return subprocess.run(command, text=True, capture_output=True, check=True, timeout=30).stdout.split()


BUNDLES = {"opencode_agent": OPENCODE, "hermes_agent": HERMES, "nooa_agent": NOOA}


@pytest.fixture(scope="session")
def bundles() -> Callable[[str], Built]:
    """An agent's harness in the cache, made if it is not there; runs of the tests take it from there."""

    def at_hand(name: str) -> Built:
        bundle = BUNDLES[name]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym"
        try:
            return ensure(bundle, cache, print)
        except UserError as error:
            unavailable(f"{bundle.title} is not there: {error}")
            raise

    return at_hand


@pytest.fixture(scope="session")
def opencode_bundle(bundles: Callable[[str], Built]) -> Built:
    """OpenCode."""
    return bundles("opencode_agent")


@pytest.fixture
def busybox_image(docker_engine: None) -> str:
    """An image with a busybox and no C library."""
    tag = "gym-test/busybox:latest"
    built = subprocess.run(["bash", "scripts/build_busybox_image.sh", tag], cwd=REPOSITORY, text=True, capture_output=True, check=False)
    if built.returncode:
        unavailable(f"an image for tests could not be built: {built.stderr.strip()[-500:]}")
    return tag


@pytest.fixture
def harness(
    docker_engine: None, bundles: Callable[[str], Built], request: pytest.FixtureRequest, runs: GymRuns, calc_row: dict[str, Any]
) -> Iterator[HarnessRuns]:
    """Runs of a harness, OpenCode if the test names no other; no process, no container and no network may be left."""
    name = getattr(request, "param", "opencode_agent")
    bundles(name)
    made = HarnessRuns(name, runs, calc_row)
    yield made
    runs.end()
    left = made.boxes()
    if left:
        subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False, timeout=60)
    assert not left, f"{len(left)} containers of the test are left over"
    runs.check_nothing_left()
