"""The recipe of SWE-bench Pro with NOOA, by the commands of its page: prepared rows, servers that run, a collector beside them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from gym.harness.bundle import Built
from tests.integration.conftest import GymRuns
from tests.integration.harness.test_nooa_solves import apply, returns, shell
from tests.integration.harness.test_opencode_recipes import BOXES, ORDER, calls, example
from tests.integration.swe.gym_runs import boxes, skip_without_environment, watched
from tests.integration.test_plain_http_client import PlainClient

pytestmark = [pytest.mark.docker, pytest.mark.slow]

RECIPE = "benchmarks/swebench/pro/nooa.yaml"
PROVIDER = """
config_paths: [responses_api_models/scripted_model/configs/scripted_model.yaml]
sandbox:
  docker: {{create: {{pull: never}}}}
policy_model:
  responses_api_models:
    scripted_model: {{rules: {rules}}}
swebench_pro_nooa_resources_server:
  resources_servers:
    swebench_pro: {{image_template: "gym-test-nooa/{{instance_id}}:latest"}}
"""
OFFLINE = {"UV_OFFLINE": "1", **dict.fromkeys(("UV_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY", "npm_config_registry"), "http://127.0.0.1:9")}
PREFIX = "swebench_pro_nooa"


def test_both_commands_of_the_recipe(docker_engine: None, bundles: Callable[[str], Built], runs: GymRuns) -> None:
    bundles("nooa_agent")
    row: dict[str, Any] = example("swebench_pro")
    image = f"gym-test-nooa/{row['instance_id'].lower()}:latest"
    subprocess.run(["docker", "tag", row["image"], image], check=True, capture_output=True, timeout=30)
    try:
        solve(runs, {name: value for name, value in row.items() if name not in ("image", "responses_create_params")})
    finally:
        subprocess.run(["docker", "rmi", image], check=False, capture_output=True, timeout=30)


def solve(runs: GymRuns, published: dict[str, Any]) -> None:
    rules = [{"when": "left to right", "steps": [{"say": "never asked for"}, shell("ls"), apply(published["patch"]), returns()]}]
    provider = runs.write("model-provider.yaml", PROVIDER.format(rules=json.dumps(rules)))
    given = ["--config", RECIPE, "--config", provider]
    data, logs = runs.folder / "swebench_pro_benchmark.jsonl", runs.folder / "logs"
    source = runs.write("published.jsonl", json.dumps(published) + "\n")
    prepare = [sys.executable, "benchmarks/swebench/pro/prepare.py", "--source", source, "--output", data]
    subprocess.run(prepare, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)

    code, output, errors = runs.run("env", "prefetch", *given, seconds=300)
    skip_without_environment(errors)
    assert code == 0, errors
    assert [line.partition(" /")[0] for line in output.splitlines()] == ["nooa_agent: Python environment", "nooa_agent: NOOA for sandboxes"]

    # From here on nothing can be fetched.
    started = runs.begin("env", "start", "--json", *given, "--log-dir", logs, **OFFLINE)
    ready = started.ready(60)
    agent = PlainClient(ready["instances"][f"{PREFIX}_agent"]["url"], Path(ready["token_file"]).read_text().strip())
    task_id, episode = {"taskset": "t", "task_id": "1"}, {"rollout_id": "r", "attempt": 0}
    code, said, _ = agent.post("/v1/agent_sessions", {"agent_session_id": "s", "episode_id": episode, "task_id": task_id})
    assert (code, said["error"]["message"]) == (422, f"{PREFIX}_agent was given no sandbox")
    collect = ["eval", "run", "--no-serve", *given, "--input", data, "--output", runs.folder / "out.jsonl", "--attempts", "1"]
    with watched() as events:
        collecting = runs.begin(*collect, "--limit", "1", "--concurrency", "1", f"+agent_name={PREFIX}_agent", **OFFLINE)
        code = collecting.ended(200)
    assert code == 0, (collecting.errors, runs.lines("out_failures.jsonl"))
    (row,) = runs.lines("out.jsonl")
    assert (row["reward"], row["resolved"], row["evaluation_completed"], row["mask_sample"]) == (1.0, True, True, False)
    assert row["agent_ref"]["name"] == f"{PREFIX}_agent"
    assert row["ng_agent_observations"]["harness"] == "NOOA"
    assert json.loads(row["response"]["output"][-1]["content"][0]["text"])["solution_description"] == "Mended."
    assert re.findall(r"^diff --git a/(\S+)", row["model_patch"], re.MULTILINE) == ["calc/evaluate.py"]
    assert calls(logs, (f"{PREFIX}_resources_server", f"{PREFIX}_agent")) == [
        ("/v1/agent_sessions", "422"),
        *((route, "200") for route in ORDER),
    ]
    made = [what for where, what in events if where.startswith(ready["run_id"])]
    assert made == [*BOXES, *BOXES[2:]], "Pro's parser has a sandbox of its own"
    started.signal()
    assert started.ended(60) in (0, 130), started.errors
    assert boxes(ready["run_id"]) == []
    runs.check_nothing_left()
