"""Runs of the calc task for tests of faults: a real Docker engine behind a proxy, and what is left of a run.

The proxy stops an episode exactly where a fault is wanted, and its word on labels tells what is this test's.
With GYM_WRITE_DOCS=1 what was counted goes into the table of docs/sandbox-leaks.md, whether it is nothing or not.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doc_tables import put_row, writing
from tests.integration.conftest import REPOSITORY, GymRuns, Started
from tests.integration.docker_proxy import DockerProxy, docker_proxy
from tests.integration.private_docker import PrivateDocker

LEAKS = REPOSITORY / "docs" / "sandbox-leaks.md"
BOUND_SECONDS = 60.0
COUNTED = ("containers", "networks", "processes", "folders")
_HEAD = ("fault", "command", "moment", *(f"{name} left" for name in COUNTED), "freed by", "after")

CONFIG = """
config_paths:
- responses_api_agents/oracle_agent/configs/oracle_agent.yaml
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
sandbox:
  docker: {docker}
box:
  resources_servers:
    calc_swe:
      entrypoint: app.py
      allowed_agents: [oracle_agent]
      expose_gold_to: [oracle_agent]
      sandbox_config: {sandbox}
agent:
  _inherit_from: oracle_agent
  responses_api_agents:
    oracle_agent: {{sleep_seconds: {sleep}}}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 20
      default_episode_timeout_seconds: 300
"""


def docker_lines(*arguments: str) -> list[str]:
    """The lines that the docker command prints."""
    return subprocess.run(["docker", *arguments], text=True, capture_output=True, check=True, timeout=60).stdout.split()


class Faults:
    """Runs of the calc task, and what is left of them."""

    def __init__(self, runs: GymRuns, proxy: DockerProxy, row: dict[str, Any]) -> None:
        self.runs, self.proxy, self.row = runs, proxy, row
        self.config = runs.config
        self.engines: list[PrivateDocker] = []
        """Engines of the test's own, all of whose containers count."""
        self.configure()

    def configure(self, *, sleep: float = 0, docker: dict[str, Any] | None = None, **sandbox: Any) -> None:
        """Write the configuration: options of the provider block, and of the sandboxes' spec."""
        block = {"host": self.proxy.host, "create": {"network": "internal", "pull": "never"}, **(docker or {})}
        spec = {"ttl_s": 600, "metadata": {"test": self.runs.tag}, **sandbox}
        self.config.write_text(CONFIG.format(docker=json.dumps(block), sandbox=json.dumps(spec), sleep=sleep))

    def eval(self, *arguments: str, attempts: int = 1, **row: Any) -> Started:
        """Begin an evaluation of the task, with fields of its row replaced."""
        rows = self.runs.rows({"responses_create_params": {"input": "go"}, **self.row, **row})
        return self.runs.eval(rows, "--attempts", str(attempts), "--overwrite", *arguments)

    def boxes(self) -> list[str]:
        """The containers of this test."""
        return docker_lines("ps", "-aq", "--filter", f"label=nemo-gym.meta.test={self.runs.tag}")

    def agent_sleeps(self, seconds: int) -> bool:
        """Whether the agent is at work in a container."""
        tops = (subprocess.run(["docker", "top", box], text=True, capture_output=True, check=False).stdout for box in self.boxes())
        return any(f"sleep {seconds}" in top for top in tops)

    def left(self) -> dict[str, int]:
        """What there is of the test's runs just now."""
        return {
            "containers": len(self.boxes()) + sum(len(engine.containers()) for engine in self.engines),
            "networks": len(docker_lines("network", "ls", "-q", "--filter", f"label=nemo-gym.{self.proxy.veil.decode()}")),
            "processes": len(self.runs.processes()),
            "folders": len(self.runs.run_folders()),
        }

    def nothing_left(self, fault: str, command: str, moment: str, freed_by: str, began: float, seconds: float = BOUND_SECONDS) -> None:
        """Wait until nothing is left, note down what is, and only then judge. `began` is the monotonic time of the fault."""
        deadline = time.monotonic() + seconds
        while any((left := self.left()).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        note(fault, command, moment, freed_by, left, time.monotonic() - began)
        assert not any(left.values()), f"left over: {left} {self.runs.run_folders()}"


@contextmanager
def faults_of(runs: GymRuns, row: dict[str, Any]) -> Iterator[Faults]:
    """Runs for one test; whatever it left is removed, and is a failure."""
    with tempfile.TemporaryDirectory(prefix="gym-proxy-") as folder, docker_proxy(Path(folder) / "docker.sock") as proxy:
        made = Faults(runs, proxy, row)
        yield made
        runs.end()
        left = made.boxes()
        if left:
            subprocess.run(["docker", "rm", "-f", *left], capture_output=True, check=False, timeout=60)
        assert not left, f"{len(left)} containers of the test are left over"


def note(fault: str, command: str, moment: str, freed_by: str, left: dict[str, int], seconds: float) -> None:
    """Put a line into the table of the documentation, where that is asked for."""
    if writing():
        put_row(LEAKS, _HEAD, [fault, f"`{command}`", moment, *(str(left[name]) for name in COUNTED), freed_by, f"{seconds:.0f} s"], keys=3)
