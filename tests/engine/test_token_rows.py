"""Rows with token ids, from the real engine's: they are its own, they are whole, and they continue one another."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gym.models.capture.records import read_calls
from gym.models.dialects.histories import Options
from gym.models.dialects.to_chat import responses_to_chat
from tests.engine.conftest import Engine, policy
from tests.engine.examples import row
from tests.integration.conftest import GymRuns

EXAMPLE = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
AGENT = "example_session_state_mgmt_simple_agent"
STREAMING = """
example_session_state_mgmt_streaming_agent:
  responses_api_agents:
    streaming_agent: {entrypoint: app.py, model_server: {type: responses_api_models, name: policy_model}, max_steps: 5}
example_session_state_mgmt_environment_server:
  environment_servers:
    single_agent_turn: {agent_server: {type: responses_api_agents, name: example_session_state_mgmt_streaming_agent}}
"""


def evaluated(runs: GymRuns, engine: Engine, *arguments: str) -> list[dict[str, Any]]:
    """The rows of a run with token capture, and with the records of its calls kept."""
    given = ["--config", EXAMPLE, "--input", runs.rows(row(4, 9), row(7, 5)), "--output", runs.folder / "out.jsonl", "--attempts", "1"]
    capture = ["token_id_capture.enabled=true", "token_id_capture.all_agents=true", "observability_enabled=true"]
    started = runs.begin("eval", "run", *given, "--model-type", "vllm_model", *policy(engine), *capture, *arguments)
    assert started.ended(240) == 0, started.errors
    rows = runs.lines("out.jsonl")
    assert len(rows) == 2, started.errors
    return rows


def chat_of(call: Any) -> dict[str, Any]:
    """What a recorded call asked of the engine."""
    if call.dialect == "responses":
        return responses_to_chat(call.request, Options(reasoning_field="reasoning", continue_final_message=True))
    return call.request


def check_row(row: dict[str, Any], calls: list[Any], engine: Engine) -> int:
    """Hold a row against the engine; returns how many calls its chain has."""
    report = row["_ng_token_capture"]
    assert report["masked_reason"] is None, report
    assert not row.get("mask_sample")
    carrying = [item for item in row["response"]["output"] if "generation_token_ids" in item]
    assert [len(chain) for chain in (carrying, calls)] == [report["n_calls"]] * 2
    for item, call in zip(carrying, calls, strict=True):
        chat = chat_of(call)
        rendered = engine.ask("/tokenize", {"model": "tiny", "messages": chat["messages"], "tools": chat["tools"]})
        assert item["prompt_token_ids"] == rendered["tokens"]
        assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) > 0
        assert all(value <= 0 for value in item["generation_log_probs"])
        text = engine.ask("/detokenize", {"model": "tiny", "tokens": item["generation_token_ids"]})["prompt"]
        check_text(text, item)
    for before, after in pairwise(carrying):
        known = before["prompt_token_ids"] + before["generation_token_ids"]
        assert after["prompt_token_ids"][: len(known)] == known
    return len(carrying)


def check_text(text: str, item: dict[str, Any]) -> None:
    """The generation, decoded again, is what the item says."""
    if item["type"] == "function_call":
        assert f'<tool_call>{{"name": "{item["name"]}", "arguments": {item["arguments"]}}}</tool_call>' in text
    else:
        assert item["content"][0]["text"].strip() == text.removesuffix("\n").strip()


def recorded(runs: GymRuns, row: dict[str, Any]) -> list[Any]:
    """The calls of a row as they were kept beside the output."""
    return read_calls(Path(runs.folder / "out_model_calls" / f"{row['_ng_rollout_id']}.jsonl"))


@pytest.mark.parametrize("isolation", ["colocated", "process"])
def test_a_tool_using_rollout_of_simple_agent(runs: GymRuns, engine: Engine, isolation: str) -> None:
    steps = f"{AGENT}.responses_api_agents.simple_agent.max_steps=5"
    rows = evaluated(runs, engine, f"+{steps}", f"isolation={isolation}")
    assert max(check_row(row, recorded(runs, row), engine) for row in rows) >= 3
    assert any(item["type"] == "function_call_output" for row in rows for item in row["response"]["output"])
    exported = runs.folder / "exported.jsonl"
    code, _, errors = runs.run("dataset", "export", "--format", "nemo-rl", "-i", runs.folder / "out.jsonl", "-o", exported)
    assert (code, len(runs.lines(exported.name))) == (0, 2), errors


def test_a_rollout_of_a_streaming_client(runs: GymRuns, engine: Engine) -> None:
    rows = evaluated(runs, engine, "--config", str(runs.write("streaming.yaml", STREAMING)), "isolation=process")
    calls = [recorded(runs, row) for row in rows]
    assert all(call.streamed for made in calls for call in made)
    assert max(check_row(row, made, engine) for row, made in zip(rows, calls, strict=True)) >= 3
