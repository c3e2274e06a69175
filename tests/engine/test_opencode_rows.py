"""A training recipe with the real OpenCode, in a real container, on the real engine: its rows can be trained on."""

import json
from typing import Any

import pytest

from conftest import REPOSITORY
from tests.engine.conftest import Engine, policy
from tests.engine.test_token_rows import check_row, recorded
from tests.integration.conftest import GymRuns

pytestmark = pytest.mark.docker

RECIPE = "resources_servers/swe_gym/configs/swe_gym_opencode.yaml"
EXAMPLE = """say {word}
assistant: <tool_call>{{"name": "bash", "arguments": {{"command": "echo {word}", "description": "say it"}}}}</tool_call>
tool: {word}

assistant: It said {word}.
"""


def task() -> dict[str, Any]:
    """The small test task, with a prompt that a very small model goes on with."""
    with (REPOSITORY / "resources_servers/swe_gym/data/example.jsonl").open() as lines:
        row = json.loads(next(lines))
    told = "user: ".join(EXAMPLE.format(word=word) for word in ("red", "green", "sea", "old"))
    params = {"input": f"{told}user: say blue", "temperature": 0}
    return {**row, "responses_create_params": params}


def test_a_training_recipe(docker_engine: None, runs: GymRuns, engine: Engine) -> None:
    given = ["--config", RECIPE, "--input", runs.rows(task()), "--output", runs.folder / "out.jsonl", "--attempts", "1"]
    more = ["++swe_gym_opencode_agent.responses_api_agents.opencode_agent.max_output_tokens=64"]
    more += ["token_id_capture.enabled=true", "observability_enabled=true", "++sandbox.docker.create.pull=never"]
    started = runs.begin("eval", "run", *given, "--model-type", "vllm_model", *policy(engine), *more)
    assert started.ended(280) == 0, (started.errors, runs.lines("out_failures.jsonl"))
    (row,) = runs.lines("out.jsonl")
    assert (row["reward"], row["evaluation_completed"]) == (0.0, True), "it was told to do something else"
    calls = recorded(runs, row)
    assert {call.dialect for call in calls} == {"chat_completions"}
    assert all(call.streamed for call in calls)
    assert check_row(row, calls, engine) >= 2
    assert "blue\n" in [item.get("output") for item in row["response"]["output"]]
