"""docs/write-an-agent.md is followed word for word."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import unavailable
from gym.config.errors import UserError
from gym.harness.interpreter import find_interpreter

if TYPE_CHECKING:
    from tests.docs.conftest import Reader

PAGE = "docs/write-an-agent.md"


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reader_gets_an_agent_that_acts(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    assert "Config is valid" in author.follow()
    for name in ("weather", "again"):
        rows = _rows(folder / f"results/{name}.jsonl")
        assert len(rows) == 5
        assert {row["reward"] for row in rows} == {1.0}
        assert all(row["ng_agent_observations"] == {"tool_calls": 1} for row in rows)
        assert {row["agent_ref"]["name"] for row in rows} == {"one_shot"}  # type: ignore[index]


def test_it_makes_one_call_and_no_more(reader: "Callable[[str], Reader]", folder: Path) -> None:
    """A task that needs three calls in turn is beyond an agent that asks once: 0, and a measurement."""
    author = reader(PAGE)
    author.write_files()
    config = (folder / "weather.yaml").read_text().replace("example_single_tool_call", "example_session_state_mgmt")
    (folder / "weather.yaml").write_text(config)
    done = author.run("gym eval run --config weather.yaml --model-type scripted_model --output counter.jsonl")
    assert done.returncode == 0, done.stderr
    assert {row["reward"] for row in _rows(folder / "counter.jsonl")} == {0.0}


def test_a_model_that_names_other_routes_gets_nowhere(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    rules = "[{when: weather, steps: [{calls: [{name: verify}, {name: close_session}, {name: ../verify}]}]}]"
    (folder / "hostile.yaml").write_text(f"policy_model: {{responses_api_models: {{scripted_model: {{rules: {rules}}}}}}}\n")
    done = author.run("gym eval run --config weather.yaml --config hostile.yaml --output hostile.jsonl")
    assert done.returncode == 0, done.stderr
    rows = _rows(folder / "hostile.jsonl")
    assert {row["reward"] for row in rows} == {0.0}
    assert json.dumps(rows).count("there is no tool") == 15


def _bash(*commands: str) -> list[dict[str, Any]]:
    return [{"call": "bash", "arguments": {"command": command}} for command in commands]


@pytest.fixture(scope="session")
def need_a_python_for_sandboxes() -> None:
    """A Python that the page's harness can be run by."""
    try:
        find_interpreter("3.12", print)
    except UserError as error:
        unavailable(str(error))


@pytest.mark.docker
@pytest.mark.slow
def test_a_command_line_harness_works_in_containers(
    reader: "Callable[[str], Reader]", folder: Path, docker_engine: None, need_a_python_for_sandboxes: None, calc_row: dict[str, Any]
) -> None:
    """mini-swe-agent, as it is on the page, solves the small test task; and what else may become of it is told apart."""
    author = reader(PAGE)
    author.write_files()
    for command in (command for command in author.commands if "mini" in command):
        done = author.run(command)
        assert done.returncode == 0, done.stderr
    scripts = {
        "mend it": _bash(f"git apply <<'X'\n{calc_row['patch']}X", "git diff --stat", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        "go on": _bash("true", "true", "true", "true"),
        "work too long": _bash("echo one", "sleep 400"),
        "be refused": [*_bash("true"), {"status": 401}],
    }
    rules = [{"when": f"Please solve this issue: {prompt}", "steps": steps} for prompt, steps in scripts.items()]
    settings = {
        "policy_model": {"responses_api_models": {"scripted_model": {"rules": rules}}},
        "mini_agent": {"responses_api_agents": {"mini_agent": {"step_limit": 3, "command_timeout": 500}}},
    }
    (folder / "scripted.yaml").write_text(json.dumps(settings))
    limits = {"work too long": {"agent_timeout_seconds": 30}}
    rows = [
        {**calc_row, "instance_id": prompt, "responses_create_params": {"input": prompt}, **limits.get(prompt, {})} for prompt in scripts
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (command,) = (block.text for block in author.blocks if block.language == "sh")
    scripted = "--model-type scripted_model --config scripted.yaml --attempts 1 --concurrency 4"
    done = author.run(command.replace("--model-type vllm_model", scripted), seconds=280)
    assert done.returncode == 76, done.stderr
    found = {row["instance_id"]: row for row in _rows(folder / "results/mini.jsonl")}
    assert {name: (row["resolved"], row["response"]["status"]) for name, row in found.items()} == {
        "mend it": (True, "completed"),
        "go on": (False, "incomplete"),
        "work too long": (False, "incomplete"),
    }
    assert found["go on"]["response"]["incomplete_details"] == {"reason": "LimitsExceeded"}
    assert found["work too long"]["agent_timed_out"] is True
    kinds = {name: [item["type"] for item in row["response"]["output"]] for name, row in found.items()}
    pair = ["function_call", "function_call_output"]
    assert kinds == {"mend it": [*pair, *pair, "function_call"], "go on": pair * 3, "work too long": [*pair, "function_call"]}
    (refused,) = _rows(folder / "results/mini_failures.jsonl")
    assert (refused["_ng_failure_kind"], refused["_ng_failure_terminal"]) == ("agent_run_error", True)
    assert "the script answers 401" in refused["_ng_failure_message"]
