"""`scripted_model`: what it is told to say, and to do wrong."""

import asyncio
import json
from typing import Any

import pytest

from responses_api_models.scripted_model.app import ScriptedModel, turns_taken
from responses_api_models.scripted_model.config import Config as ScriptedConfig
from tests.unit.servers.conftest import Rig


async def scripted(rig: Rig, steps: Any, items: list[Any] | None = None, **config: Any) -> Any:
    if "model" not in rig.servers:
        await rig.add("model", ScriptedModel, ScriptedConfig(**config))
    body = {"input": items or [{"role": "user", "content": "go"}]}
    if steps is not None:
        body["metadata"] = {"script": steps if isinstance(steps, str) else json.dumps(steps)}  # type: ignore[assignment]
    return await rig.call("model", "/v1/responses", body)


USER = {"role": "user", "content": "go"}
CALL = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}
SAID = {"type": "message", "role": "assistant", "content": "hello"}


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([USER], 0),
        ([USER, CALL, RESULT], 1),
        ([USER, CALL, CALL, RESULT, RESULT], 1),
        ([USER, {"type": "reasoning"}, SAID, CALL, RESULT], 1),
        ([USER, CALL, RESULT, CALL, RESULT, SAID, USER], 3),
        ([], 0),
    ],
)
def test_turns_are_counted_from_the_request_alone(items: list[Any], turns: int) -> None:
    assert turns_taken(items) == turns


async def test_each_kind_of_step(rig: Rig) -> None:
    assert (await scripted(rig, [{"say": "hi"}])).json()["output"][0]["content"][0]["text"] == "hi"
    calls = (await scripted(rig, [{"calls": [{"name": "a"}, {"name": "b", "arguments": {"x": 1}}]}])).json()["output"]
    assert [(item["name"], item["arguments"]) for item in calls] == [("a", "{}"), ("b", '{"x":1}')]
    assert (await scripted(rig, [{"call": "f", "arguments": "{bad"}])).json()["output"][0]["arguments"] == "{bad"
    assert (await scripted(rig, [{"body": "garbage"}])).body == b"garbage"
    busy = await scripted(rig, [{"status": 429, "retry_after": 2}])
    assert (busy.status, busy.headers["retry-after"]) == (429, "2")
    ended = await scripted(rig, [{"say": "hi"}], [USER, SAID, USER])
    assert ended.json()["output"][0]["content"][0]["text"] == "The script has ended."
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scripted(rig, [{"hang": True}]), 0.05)


@pytest.mark.parametrize("steps", ["{", "3", '[{"say": "a", "call": "b"}]', "[{}]", '[{"status": 200}]', '[{"said": "a"}]'])
async def test_a_script_that_is_none_is_a_422(rig: Rig, steps: str) -> None:
    reply = await scripted(rig, steps)
    assert (reply.status, "metadata.script" in reply.json()["error"]["message"]) == (422, True)


async def test_rules_fill_in_what_their_pattern_found(rig: Rig) -> None:
    steps = [{"call": "add", "arguments": {"n": "{n}", "to": "{what}!", "k": "{x}"}}]
    rules = [{"when": r"add (?P<n>-?\d+) to (?P<what>\w+)", "steps": steps}]
    reply = await scripted(rig, None, [{"role": "user", "content": "Please ADD -5 to this"}], rules=rules)
    assert json.loads(reply.json()["output"][0]["arguments"]) == {"n": -5, "to": "this!", "k": "{x}"}
    assert (await scripted(rig, None, [{"role": "user", "content": "no rule"}])).status == 422
