"""`scripted_model` in each dialect, streamed and whole, and where its answers break."""

import json
from typing import Any

import aiohttp
import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from gym.models.calls import Dialect
from gym.models.dialects.assemble import assembler
from gym.models.sse import SSEEvent, SSEParser
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config
from tests.unit.servers.conftest import Rig, refused

ROUTES: dict[Dialect, str] = {"responses": "/v1/responses", "chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
DIALECTS = list(ROUTES)
TYPES: dict[Dialect, Any] = {"responses": Response, "chat_completions": ChatCompletion, "messages": Message}
GO = {"role": "user", "content": "go"}
BOTH = {"calls": [{"name": "f", "arguments": {"x": "é😀"}}, {"name": "g", "arguments": "{bad"}], "think": "hm"}


async def asked(rig: Rig, dialect: Dialect, steps: Any, history: Any = None, **fields: Any) -> Any:
    if "model" not in rig.servers:
        await rig.add("model", ScriptedModel, Config())
    name = "input" if dialect == "responses" else "messages"
    body = {name: history if history is not None else [GO], "metadata": {"script": json.dumps(steps)}, **fields}
    return await rig.call("model", ROUTES[dialect], body)


async def whole(rig: Rig, dialect: Dialect, steps: Any, history: Any = None, **fields: Any) -> Any:
    reply = await asked(rig, dialect, steps, history, **fields)
    assert reply.status == 200, reply.body
    TYPES[dialect].model_validate(reply.json())
    return reply.json()


async def streamed(rig: Rig, dialect: Dialect, step: Any, **fields: Any) -> list[SSEEvent]:
    reply = await asked(rig, dialect, [step], stream=True, **fields)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return SSEParser().feed(reply.body)


def without_ids(value: Any) -> Any:
    """`value` without what differs each time."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key not in ("id", "call_id", "created", "created_at")}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


async def test_one_step_in_the_words_of_each_dialect(rig: Rig) -> None:
    response, message = await whole(rig, "responses", [BOTH]), await whole(rig, "messages", [BOTH])
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call", "function_call"]
    assert [item.get("arguments") for item in response["output"]] == [None, '{"x":"é😀"}', "{bad"]
    assert [block["type"] for block in message["content"]] == ["thinking", "tool_use", "tool_use"]
    assert (message["content"][1]["input"], message["stop_reason"]) == ({"x": "é😀"}, "tool_use")
    (choice,) = (await whole(rig, "chat_completions", [BOTH]))["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f", "g"]
    assert (choice["message"]["reasoning_content"], choice["finish_reason"]) == ("hm", "tool_calls")


async def test_refusals_and_other_ends(rig: Rig) -> None:
    refusal, cut = [{"refuse": "no"}], [{"say": "ha", "finish_reason": "length"}]
    assert (await whole(rig, "responses", refusal))["output"][0]["content"] == [{"type": "refusal", "refusal": "no"}]
    assert (await whole(rig, "chat_completions", refusal))["choices"][0]["message"]["refusal"] == "no"
    assert (await whole(rig, "messages", refusal))["stop_reason"] == "refusal"
    assert (await whole(rig, "responses", cut))["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (await whole(rig, "chat_completions", cut))["choices"][0]["finish_reason"] == "length"
    assert (await whole(rig, "messages", cut))["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("step", [BOTH, {"say": "wörds", "think": "hm", "piece": 1}, {"refuse": "no", "piece": 1}, {"say": ""}])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_streamed_answer_amounts_to_the_whole_one(rig: Rig, dialect: Dialect, step: Any) -> None:
    reader = assembler(dialect)
    for event in await streamed(rig, dialect, step, stream_options={"include_usage": True}):
        reader.add(event)
    expected = await whole(rig, dialect, [step], stream=None, stream_options={"include_usage": True})  # as long, for the same usage
    assert reader.finished
    assert without_ids(reader.result()) == without_ids(expected)


async def test_usage_comes_in_a_stream_of_chat_completions_for_those_who_ask(rig: Rig) -> None:
    for options in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": None}):
        assert not any("usage" in event.data for event in await streamed(rig, "chat_completions", {"say": "a"}, **options))
    *_, last, end = await streamed(rig, "chat_completions", {"say": "a"}, stream_options={"include_usage": True})
    assert (json.loads(last.data)["choices"], json.loads(last.data)["usage"]["total_tokens"] > 0, end.data) == ([], True, "[DONE]")


RESULT = "the result"
CALLED: dict[Dialect, list[Any]] = {
    "responses": [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "a"},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "b"},
        {"type": "function_call_output", "call_id": "a", "output": RESULT},
        {"type": "function_call_output", "call_id": "b", "output": RESULT},
    ],
    "chat_completions": [
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in "ab"],
        },
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": RESULT}]},
    ],
    "messages": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I call"},
                *({"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": RESULT},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": RESULT}], "is_error": True},
            ],
        },
    ],
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_how_often_the_model_has_spoken_is_read_from_each_form(rig: Rig, dialect: Dialect) -> None:
    steps = [{"say": f"step {number}"} for number in range(4)]
    said = {"role": "assistant", "content": "hello"}
    for turns, history in enumerate(
        [[GO], [GO, *CALLED[dialect]], [GO, *CALLED[dialect], *CALLED[dialect]], [GO, said, GO, said, GO, said]]
    ):
        assert f"step {turns}" in (await asked(rig, dialect, steps, history)).body.decode()


@pytest.mark.parametrize("dialect", ["chat_completions", "messages"])
async def test_rules_look_at_the_last_thing_the_user_said(rig: Rig, dialect: Dialect) -> None:
    await rig.add("model", ScriptedModel, Config(rules=[{"when": "(?P<what>.o)$", "steps": [{"say": "{what}"}]}]))
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}, *CALLED[dialect]]}
    assert "ended" in (await rig.call("model", ROUTES[dialect], body)).body.decode()
    assert '"go"' in (await rig.call("model", ROUTES[dialect], {"messages": [{"role": "user", "content": "then go"}]})).body.decode()


async def test_several_choices(rig: Rig) -> None:
    choices = (await whole(rig, "chat_completions", [BOTH], n=3))["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({call["id"] for choice in choices for call in choice["message"]["tool_calls"]}) == 6


ODD: list[tuple[Dialect, Any]] = [
    ("chat_completions", 3),
    ("chat_completions", ["go"]),
    ("messages", [{"role": "user", "content": [{"type": "server_tool_use"}]}]),
    ("messages", [{"role": "user", "content": 3}]),
    ("messages", [{"role": "tool", "content": "x"}]),
    ("responses", 3),
]


@pytest.mark.parametrize(("dialect", "history"), ODD)
async def test_a_history_that_is_none_is_a_422(rig: Rig, dialect: Dialect, history: Any) -> None:
    assert (await asked(rig, dialect, [{"say": "a"}], history)).status == 422


@pytest.mark.parametrize("content", [3, ["x"], [{"type": "text", "text": 3}], [{"type": "image_url"}], [{}], None, {}])
async def test_odd_content_of_a_chat_message_is_nothing_said(rig: Rig, content: Any) -> None:
    assert (await asked(rig, "chat_completions", [{"say": "a"}], [{"role": "user", "content": content}])).status == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_whose_connection_breaks(rig: Rig, dialect: Dialect, stream: bool) -> None:
    error = await refused(asked(rig, dialect, [{"say": "words " * 50, "breaks": "connection"}], stream=stream))
    assert error.kind == "transport_peer_drop"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_that_reports_an_error(rig: Rig, dialect: Dialect) -> None:
    step = {"say": "words " * 5, "piece": 4, "breaks": "error"}
    events, reader = await streamed(rig, dialect, step), assembler(dialect)
    for event in events:
        reader.add(event)
    assert (reader.finished, "the script" in str(reader.error), "words w" in str(reader.result())) == (False, True, True)
    if dialect == "responses":
        assert [json.loads(event.data)["sequence_number"] for event in events] == list(range(len(events)))
    assert (await asked(rig, dialect, [step])).status == 500


async def test_a_slow_stream_comes_piece_by_piece(rig: Rig) -> None:
    await rig.add("model", ScriptedModel, Config())
    url = await rig.serve("model")
    body = {"messages": [GO], "stream": True, "metadata": {"script": json.dumps([{"say": "one two", "piece": 3, "pace": 0.3}])}}
    came: list[bytes] = []
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        async for data in response.content.iter_any():
            came.append(data)
            if b"one" in data:
                break
    assert b"two" not in b"".join(came)
