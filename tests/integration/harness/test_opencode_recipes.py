"""The shipped recipes with the real OpenCode: in the contract's order, one sandbox after the other, and nothing left."""

import json
import os
import re
import signal
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from gym.harness.bundle import Built
from tests.integration.conftest import GymRuns, wait_for
from tests.integration.harness.test_opencode_solves import SOLVE
from tests.integration.swe.gym_runs import boxes, read, skip_without_environment, watched
from tests.integration.test_plain_http_client import PlainClient

pytestmark = [pytest.mark.docker, pytest.mark.slow]

OVERLAY = """
config_paths:
- responses_api_models/scripted_model/configs/scripted_model.yaml
{recipes}
sandbox:
  docker: {{create: {{pull: never}}}}
policy_model:
  responses_api_models:
    scripted_model: {{rules: {rules}}}
{more}
"""
SESSIONS = {
    "swebench_verified": ("swebench:verified", "benchmarks/swebench/verified/opencode.yaml", "swebench/data/example"),
    "swebench_multilingual": (
        *("swebench:multilingual", "benchmarks/swebench/multilingual/opencode.yaml", "swebench/data/example_multilingual"),
    ),
    "swebench_pro": ("swebench:pro", "benchmarks/swebench/pro/opencode.yaml", "swebench_pro/data/example"),
    **{
        name: (name, f"resources_servers/{name}/configs/{name}_opencode.yaml", f"{name}/data/example")
        for name in ("swe_gym", "r2e_gym", "scale_swe")
    },
}
"""Prefix -> taskset, recipe, and example rows, of which the first is run."""
ORDER = [
    "/seed_session",
    "/v1/agent_sessions",
    "/v1/responses",
    "/v1/agent_sessions/close",
    "/verify",
    "/close_session",
]
BOXES = ["create task", "destroy task", "create verifier", "destroy verifier"]
LINE = re.compile(r"^(\S+) INFO gym.access (\S+) POST (?:/ng-rollout/[^/]+)?(\S+) (\d+) ([\d.]+)ms", re.MULTILINE)


def example(prefix: str) -> dict[str, Any]:
    """A small task as its data set has it."""
    return read(REPOSITORY / f"resources_servers/{SESSIONS[prefix][2]}.jsonl")[0]


def task(row: dict[str, Any], taskset: str) -> dict[str, Any]:
    return {"task_id": {"taskset": taskset, "task_id": row["instance_id"]}, "task_input": row}


def scripts(*rows: dict[str, Any]) -> str:
    """What the model says: in /testbed it mends the calculator with OpenCode's own tools, and all else by a patch."""
    rules = [{"when": r"/testbed has[\s\S]*left to right", "steps": [*SOLVE, {"say": "Mended."}]}]
    for row in rows:
        command = f"git apply <<'PATCH'\n{row['patch']}\nPATCH"
        told = row["responses_create_params"]["input"][0]["content"]
        steps = [{"call": "bash", "arguments": {"command": command, "description": "mend it"}}, {"say": "Mended."}]
        rules.append({"when": re.escape(told[:150]), "steps": steps})
    return json.dumps(rules)


def calls(logs: Path, instances: Iterable[str]) -> list[tuple[str, str]]:
    """Route and status of the contract's calls to these instances, in the order in which they were begun."""
    found: list[tuple[datetime, str, str]] = []
    for log in logs.glob("*.log"):
        for ended, instance, route, status, took in LINE.findall(log.read_text()):
            if instance in instances and route in ORDER:
                found.append((datetime.fromisoformat(ended) - timedelta(milliseconds=float(took)), route, status))
    return [(route, status) for _, route, status in sorted(found)]


def check_solved(row: dict[str, Any]) -> None:
    assert (row["reward"], row["resolved"], row["evaluation_completed"], row["mask_sample"]) == (1.0, True, True, False), row
    assert row["ng_agent_observations"]["harness"] == "OpenCode"
    assert row["ng_model_call_capture"]["metrics"]["num_calls"] >= 2


def test_the_six_session_recipes(docker_engine: None, opencode_bundle: Built, runs: GymRuns) -> None:
    """All in one run, whose rows find their environment servers by their tasksets."""
    rows = {prefix: example(prefix) for prefix in SESSIONS}
    tasks = [task(rows[prefix], taskset) for prefix, (taskset, _, _) in SESSIONS.items()]
    recipes = "\n".join(f"- {recipe}" for _, recipe, _ in SESSIONS.values())
    overlay = runs.write("overlay.yaml", OVERLAY.format(recipes=recipes, rules=scripts(*rows.values()), more=""))
    logs = runs.folder / "logs"
    arguments = ["--config", overlay, "--input", runs.rows(*tasks), "--output", runs.folder / "out.jsonl"]
    with watched() as events:
        started = runs.begin("eval", "run", *arguments, "--attempts", "1", "--concurrency", "3", f"log_dir={logs}")
        code = started.ended(280)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    done = {row["_ng_task_id"]["taskset"]: row for row in runs.lines("out.jsonl")}
    assert len(done) == 6
    for prefix, (taskset, _, _) in SESSIONS.items():
        row, name = done[taskset], f"{prefix}_opencode"
        check_solved(row)
        assert row["_ng_environment_server"] == f"{name}_environment_server"
        assert calls(logs, (f"{name}_resources_server", f"{name}_agent")) == [(route, "200") for route in ORDER], prefix
        made = [what for where, what in events if where == f"{row['_ng_run_id']}/{name}_resources_server"]
        assert made == [*BOXES, *BOXES[2:]] if prefix == "swebench_pro" else BOXES, prefix  # Pro's parser has a sandbox of its own
        assert boxes(row["_ng_run_id"]) == []
    runs.check_nothing_left()


FLAT = """
swebench_verified_opencode_resources_server:
  resources_servers: {swebench: {allowed_agents: [opencode_sandboxed_agent, opencode_agent]}}
flat_agent:
  _inherit_from: opencode_swe_agent
flat:
  _inherit_from: single_agent_turn_legacy
  environment_servers:
    single_agent_turn_legacy:
      resources_server: {type: resources_servers, name: swebench_verified_opencode_resources_server}
      agent_server: {type: responses_api_agents, name: flat_agent}
"""


def test_the_relay_and_flat_rows(docker_engine: None, opencode_bundle: Built, runs: GymRuns) -> None:
    """The deprecated recipe of Verified for a collector, and the same row for a client that sends flat rows and waits for the same.

    The relay's agent is killed in the midst of its first attempt: a failure and no zero, and nothing of it is left.
    """
    row, prefix, logs = example("swebench_verified"), "swebench_verified", runs.folder / "logs"
    recipes = (
        "- benchmarks/swebench/verified/opencode_legacy_agent.yaml\n"
        "- environment_servers/single_agent_turn_legacy/configs/single_agent_turn_legacy.yaml"
    )
    overlay = runs.write("overlay.yaml", OVERLAY.format(recipes=recipes, rules=scripts(), more=FLAT))
    started = runs.begin("env", "start", "--json", "--config", overlay, "--log-dir", logs)
    try:
        started.ready(120)
    except AssertionError:
        skip_without_environment(started.errors)
        raise
    status = json.loads(runs.run("env", "status", "--json")[1])
    agent, resources = f"{prefix}_opencode_sandboxed_agent", f"{prefix}_opencode_resources_server"
    source = ["--input", runs.rows(row), "--env", f"{prefix}_environment_server", "--output", runs.folder / "out.jsonl"]
    collecting = runs.begin("eval", "run", "--no-serve", *source, "--attempts", "2")
    wait_for(lambda: calls(logs, (agent,)), "the agent has opened no session", 60)
    os.kill(status["instances"][agent]["pid"], signal.SIGKILL)
    client = PlainClient(status["instances"]["flat"]["url"], Path(status["token_file"]).read_text())
    code, flat, _ = client.post("/run", row, seconds=200)
    assert code == 200, flat
    check_solved(flat)
    assert "_ng_failure_class" not in flat
    assert flat["agent_ref"]["name"] == "flat_agent"

    assert collecting.ended(200) == 0, (collecting.errors, runs.lines("out_failures.jsonl"))
    (relayed,), (failed,) = runs.lines("out.jsonl"), runs.lines("out_failures.jsonl")
    check_solved(relayed)
    assert (relayed["agent_ref"]["name"], relayed["_ng_attempt_index"]) == (agent, 1)
    assert relayed["model_patch"] == flat["model_patch"]
    assert (failed["_ng_failure_kind"], failed["_ng_failure_stage"], failed["_ng_failure_terminal"]) == (
        "transport_peer_drop",
        "agent",
        False,
    )
    assert "reward" not in failed
    opened = [(route, "200") for route in ORDER[1:4]]
    assert calls(logs, ("flat_agent",)) == opened
    # Of the first attempt there is an open session, and its close by whoever came after.
    assert sorted(calls(logs, (agent,))) == sorted([*opened, opened[0], opened[2]])
    assert [route for route, _ in calls(logs, (resources,))].count("/close_session") == 3
    said = (logs / f"{agent}.log").read_text()
    assert said.count("opencode_sandboxed_agent is deprecated") == 2, "once for each start"
    assert boxes(status["run_id"]) == []
    started.signal()
    assert started.ended(60) in (0, 130), started.errors
    runs.check_nothing_left()
