"""What happens at the limits of a sandbox: disk full, out of memory, too many processes, children that stay.

Each is an episode of one run on a real Docker engine, done by a scripted agent: as the agent's own doing, or in
the code of its patch while that is graded. What is not the patch's fault is no zero; nothing is left of any.
"""

import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import GymRuns
from tests.integration.fault_runs import Faults, faults_of

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CONFIG = """
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
sandbox:
  docker: {{host: {host}, create: {{network: internal, pull: never}}}}
box:
  resources_servers:
    calc_swe:
      entrypoint: app.py
      evaluation_timeout: 25
      inconclusive_verification_retries: 0
      sandbox_config:
        ttl_s: 600
        metadata: {{test: "{tag}"}}
        resources: {{memory_mib: 256}}
        provider_options: {{pids_limit: 100, tmpfs: {{/tmp: "size=16m,exec"}}}}
agent:
  responses_api_agents:
    shell_agent: {{entrypoint: app.py}}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      cleanup_timeout_seconds: 20
      default_episode_timeout_seconds: 300
"""

FORK_FOREVER = """
    import os, sys
    if "pytest" in sys.modules:
        while True:
            try:
                os.fork()
            except OSError:
                pass
"""
ALLOCATE = "    import sys\n    hoard = bytearray(10**9) if 'pytest' in sys.modules else None\n"
FILL_TMP = "    import sys\n    if 'pytest' in sys.modules:\n        open('/tmp/hoard', 'wb').write(bytes(10**8))\n"

SOLVED, ZERO, MASKED = "solved", "zero", "masked"


def cases(gold: str) -> dict[str, tuple[str, set[str]]]:
    """Name -> what the agent does, and what it may come to."""
    solve = f"cd /testbed && git apply - <<'END_OF_PATCH'\n{gold}\nEND_OF_PATCH\n"

    def patch(code: str) -> str:
        return f"{solve}cat >>calc/__init__.py <<'END_OF_CODE'\n{textwrap.dedent(code)}\nEND_OF_CODE\n"

    bomb = "bomb() { while :; do bomb & done; }; (bomb >/dev/null 2>&1 &) ; sleep 0.5\n"
    return {
        "nothing out of the way": (solve, {SOLVED}),
        "the agent fills the disk": (f"{solve}head -c 100000000 /dev/zero >/tmp/hoard\n", {MASKED}),
        "the agent runs out of memory": (f"{solve}python3 -c 'bytearray(10**9)'; echo it said $?\n", {SOLVED}),
        "the agent leaves a fork bomb": (solve + bomb, {MASKED, SOLVED}),
        "the agent leaves children that hold its output": (f"{solve}sleep 601 & setsid sleep 601 & (sleep 601 &)\n", {SOLVED}),
        "the patch fills the disk": (patch(FILL_TMP), {MASKED, ZERO}),
        "the patch runs out of memory": (patch(ALLOCATE), {MASKED, ZERO}),
        "the patch is a fork bomb": (patch(FORK_FOREVER), {MASKED, ZERO}),
    }


@pytest.fixture
def faults(docker_engine: None, runs: GymRuns, calc_row: dict[str, Any]) -> Iterator[Faults]:
    with faults_of(runs, calc_row) as made:
        yield made


def outcome(row: dict[str, Any]) -> str:
    if row["mask_sample"]:
        return MASKED
    return SOLVED if row["reward"] == 1.0 else ZERO


def test_the_limits_of_sandboxes_end_no_run_and_are_no_zero_by_themselves(faults: Faults) -> None:
    faults.config.write_text(CONFIG.format(host=faults.proxy.host, tag=faults.runs.tag))
    expected = cases(faults.row["patch"])
    names = {f"case-{number}": case for number, case in enumerate(expected)}
    works = ({"instance_id": name, "responses_create_params": {"input": expected[case][0]}} for name, case in names.items())
    rows = faults.runs.rows(*({**faults.row, **work} for work in works))
    began = time.monotonic()
    started = faults.runs.eval(rows, "--attempts", "1", "--concurrency", "3")
    started.ended(200)
    assert "Traceback" not in started.errors, started.errors
    failures = faults.runs.lines("out_failures.jsonl")
    assert not failures, failures
    got = {names[row["instance_id"]]: row for row in faults.runs.lines("out.jsonl")}
    outcomes = {case: outcome(row) for case, row in got.items()}
    wrong = {case: (outcomes.get(case), got.get(case)) for case, (_, allowed) in expected.items() if outcomes.get(case) not in allowed}
    assert not wrong, wrong
    assert "space" in got["the agent fills the disk"]["failure_reason"]
    faults.nothing_left("limits of sandboxes met", "gym eval run", "agent working, verifying", "the run", began)
