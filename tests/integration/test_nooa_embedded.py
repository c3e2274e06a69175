"""Agents of NOOA's in the agent server: the counter example, with a scripted model."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import GYM, REPOSITORY, GymRuns, Started
from tests.integration.swe.gym_runs import skip_without_environment
from tests.integration.test_plain_http_client import TOOLS, PlainClient

pytestmark = pytest.mark.slow

EXAMPLE = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt_nooa.yaml"
NAME = "example_session_state_mgmt"
CONFIG = """
config_paths:
- {example}
- responses_api_models/scripted_model/configs/scripted_model.yaml
policy_model:
  responses_api_models:
    scripted_model: {{rules: {rules}}}
{name}_nooa_agent:
  responses_api_agents:
    nooa_agent: {agent}
"""
FIRST = {"say": "never asked for: NOOA makes the first call itself"}


def python(code: str) -> dict[str, Any]:
    return {"call": "execute_python", "arguments": {"code": code}}


def returns(result: str) -> dict[str, Any]:
    return {"call": "return_result", "arguments": {"result": result}}


def rule(task: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"when": f"task='{task}'", "steps": [FIRST, *steps]}


COUNTING = (
    python("await self.increment_counter(count=1)\nawait self.increment_counter(count=2)\nprint(await self.get_counter_value())"),
    returns("It stands at 6."),
)


def config(runs: GymRuns, *rules: dict[str, Any], **agent: Any) -> Path:
    return runs.write("nooa.yaml", CONFIG.format(example=EXAMPLE, name=NAME, rules=json.dumps(rules), agent=json.dumps(agent)))


def up(started: Started) -> dict[str, Any]:
    try:
        return started.ready(120)
    except AssertionError:
        skip_without_environment(started.errors)
        raise


def row(number: int, task: str, expected: int) -> dict[str, Any]:
    tools = [{**TOOLS[0], "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}}, TOOLS[1]]
    params = {"input": [{"role": "user", "content": task}], "tools": tools}
    return {
        "task_id": {"taskset": "nooa-counter", "task_id": str(number)},
        "task_input": {"responses_create_params": params, "task_data": {"initial_count": number, "expected_count": expected}},
    }


def test_the_smoke_script(runs: GymRuns) -> None:
    model = runs.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {entrypoint: app.py, rules: RULES}}}")
    model.write_text(model.read_text().replace("RULES", json.dumps([rule("add 1 then add 2 then get the count", *COUNTING)])))
    started = runs.begin("env", "start", "--json", "--config", model)
    ready = started.ready()
    env = {
        **runs.env,
        "PATH": f"{GYM.parent}{os.pathsep}{os.environ['PATH']}",
        "POLICY_BASE_URL": ready["instances"]["policy_model"]["url"] + "/v1",
        "POLICY_API_KEY": Path(ready["token_file"]).read_text().strip(),
        "POLICY_MODEL_NAME": "scripted",
    }
    script = ["bash", "responses_api_agents/nooa_agent/smoke/run_stateful_e2e.sh"]
    done = subprocess.run(script, cwd=REPOSITORY, env=env, text=True, capture_output=True, check=False, timeout=200)
    skip_without_environment(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the counter stands at 6: reward 1.0")
    unset = subprocess.run(script, cwd=REPOSITORY, env={**env, "POLICY_API_KEY": ""}, text=True, capture_output=True, check=False)
    assert (unset.returncode, unset.stderr) == (2, "run_stateful_e2e.sh: set POLICY_API_KEY\n")
    started.signal()
    started.ended()


def test_sixteen_sessions_at_once_keep_apart(runs: GymRuns) -> None:
    """Each counts by its own numbers; some block their thread, some use up their budget, and those that fail take none with them."""
    rules, rows = [], []
    for number in range(16):
        add = 100 + number
        wait = "sum(range(5_000_000))" if number % 4 == 0 else "import asyncio; await asyncio.sleep(0.2)"
        step = python(f"{wait}\nawait self.increment_counter(count={add})\nprint('mine is', {number}, await self.get_counter_value())")
        match number % 4:
            case 1:
                steps = [step] * 9
            case 2:
                steps = [step, {"status": 500}]
            case _:
                steps = [step, step, returns(f"{number} is done")]
        task = f"task number {number} of them"
        rules.append(rule(task, *steps))
        rows.append(row(number, task, number + 2 * add))
    started = runs.begin(
        *("eval", "run", "--config", config(runs, *rules, max_policy_calls=5), "--input", runs.rows(*rows), "--attempts", "1"),
        *("--output", runs.folder / "out.jsonl", "--concurrency", "16"),
    )
    code = started.ended(150)
    skip_without_environment(started.errors)
    assert code == 76, started.errors
    done = {int(made["_ng_task_id"]["task_id"]): made for made in runs.lines("out.jsonl")}
    failed = {int(made["_ng_task_id"]["task_id"]): made for made in runs.lines("out_failures.jsonl")}
    assert sorted(failed) == [2, 6, 10, 14]
    assert {failure["_ng_failure_kind"] for failure in failed.values()} == {"agent_request_failed"}
    assert sorted([*done, *failed]) == list(range(16))
    for number, made in done.items():
        observed, reason = made["ng_agent_observations"], (made["response"].get("incomplete_details") or {}).get("reason")
        times = 5 if number % 4 == 1 else 2
        assert (made["reward"], reason) == ((0.0, "agent_budget_exhausted") if times == 5 else (1.0, None)), number
        assert made["ng_model_call_capture"]["metrics"]["num_calls"] == (5 if times == 5 else 3)
        counts = [call["arguments"]["count"] for call in observed["resource_calls"] if call["name"] == "increment_counter"]
        assert counts == [100 + number] * times
        printed = [ran["stdout"].split()[2] for ran in observed["python_executions"] if ran["stdout"].startswith("mine is")]
        assert printed == [str(number)] * times, "what one prints is not in another's trace"
        executions = {ran["execution"] for ran in observed["python_executions"]}
        assert {call["execution"] for call in observed["resource_calls"]} <= executions
        assert made["response"]["usage"]["input_tokens"] == made["ng_model_call_capture"]["metrics"]["tokens_in"]
    runs.check_nothing_left()


def test_a_session_by_hand(runs: GymRuns) -> None:
    """One activation, shared by identical retries; the tools' cookies come back; a tool server that is gone fails it."""
    blocks = python("import time\nwhile True:\n    time.sleep(0.1)")
    rules = [rule("count", *COUNTING), rule("hang", {"hang": True}), rule("block", blocks)]
    given = ["env", "start", "--json", "--config", config(runs, *rules), "--log-dir", runs.folder / "logs"]
    started = runs.begin(*given)
    ready = up(started)
    token = Path(ready["token_file"]).read_text().strip()
    resources, agent = (PlainClient(ready["instances"][f"{NAME}_{name}"]["url"], token) for name in ("resources_server", "nooa_agent"))
    tools = row(0, "count", 0)["task_input"]["responses_create_params"]["tools"]

    def open_session(name: str, url: str, cookies: dict[str, str]) -> tuple[dict[str, Any], str, str]:
        episode = {"rollout_id": name, "attempt": 0}
        grant = {"kind": "direct_http", "name": "tools", "required": True, "base_url": url, "cookies": cookies}
        body = {
            "agent_session_id": f"s-{name}",
            "episode_id": episode,
            "task_id": {"taskset": "t", "task_id": name},
            "tool_accesses": [grant],
        }
        code, said, cookie = agent.post("/v1/agent_sessions", body)
        assert code == 200, said
        assert cookie is not None
        return {"agent_session_id": f"s-{name}", "episode_id": episode}, cookie, f"/ng-rollout/{name}/v1/responses"

    seed = {"resources_session_id": "r", "episode_id": {"rollout_id": "r", "attempt": 0}, "task_id": {"taskset": "t", "task_id": "1"}}
    code, _, cookie = resources.post("/seed_session", {**seed, "task_data": {"initial_count": 3, "expected_count": 6}})
    assert code == 200
    assert cookie is not None
    name, _, value = cookie.partition("=")
    close, session, path = open_session("one", f"http://{resources._host}", {name: value})
    answers: list[tuple[int, Any]] = []

    def ask() -> None:
        answers.append(agent.post(path, {"input": "count", "tools": tools}, session, seconds=60)[:2])

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    ask()
    assert [code for code, _ in answers] == [200] * 4, answers
    assert len({answer["id"] for _, answer in answers}) == 1
    assert [item["type"] for item in answers[0][1]["output"]].count("function_call") == 2, "it ran once"
    code, said, _ = agent.post(path, {"input": "another", "tools": tools}, session)
    assert code == 409, said
    code, closed, _ = agent.post("/v1/agent_sessions/close", close)
    assert code == 200, closed
    assert closed["resources_cookies"][name]
    assert len(closed["agent_observations"]["resource_calls"]) == 3

    close, session, path = open_session("gone", "http://127.0.0.1:9", {})
    code, said, _ = agent.post(path, {"input": "count", "tools": tools}, session, seconds=60)
    assert (code, said["error"]["type"]) == (502, "transport_unreachable"), said
    assert agent.post("/v1/agent_sessions/close", close)[0] == 200

    # One that waits is ended by its close; of one that heeds nothing it is not known, and the close says so.
    for task, ends in (("hang", 200), ("block", 500)):
        close, session, path = open_session(task, "http://127.0.0.1:9", {})
        asked = (path, {"input": task}, session)
        waiting = threading.Thread(target=lambda asked=asked: agent.post(*asked, seconds=60))
        waiting.start()
        waiting.join(3)
        code, said, _ = agent.post("/v1/agent_sessions/close", close, seconds=60)
        assert code == ends, said
        waiting.join(30)
    assert "launch outcome is unknown; cannot confirm termination" in said["error"]["message"]
    log = (runs.folder / "logs" / f"{NAME}_nooa_agent.log").read_text()
    assert "runs NOOA embedded: the policy's Python has this server's files, processes and network, without any protection" in log
    started.signal()
    started.ended(60)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ({"nooa": {"agent_class": "nooa_bench.bench_agent:None_such"}}, "nooa_bench.bench_agent:None_such cannot be imported"),
        ({"nooa": {"agent_class": "pathlib:Path"}}, "agent_class pathlib:Path is no class of NOOA agents"),
        ({"nooa": {"invocation_adapter": "os.path:join"}}, "invocation_adapter os.path:join is no async function"),
    ],
)
def test_what_cannot_be_an_agent_is_said_at_the_start(runs: GymRuns, agent: dict[str, Any], reason: str) -> None:
    started = runs.begin("env", "start", "--json", "--config", config(runs, rule("x", returns("y")), **agent))
    code = started.ended(120)
    skip_without_environment(started.errors)
    assert (code, reason in started.errors) == (1, True), started.errors
