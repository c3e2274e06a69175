"""The real OpenAI and Anthropic clients: before a model server, and before one that converts for an endpoint behind it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall

from gym.servers.base import Server
from responses_api_models.openai_model.app import OpenAIModel
from responses_api_models.openai_model.config import Config as OpenAIConfig
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config, Rule
from tests.unit.servers.conftest import Rig

STEPS: dict[str, list[Any]] = {
    "text": [{"say": "Grüße 😀 and more", "think": "hm", "piece": 3}],
    "tools": [
        {"calls": [{"name": "run", "arguments": {"cmd": "ls é"}}, {"name": "run", "arguments": {}}], "piece": 3},
        {"say": "done", "piece": 1},
    ],
    "refusal": [{"refuse": "I will not", "piece": 4}],
    "cut": [{"say": "half a", "finish_reason": "length"}],
    "drop": [{"say": "words " * 20, "piece": 6, "breaks": "connection"}],
    "error": [{"say": "words " * 20, "piece": 6, "breaks": "error"}],
    **{f"status {status}": [{"status": status}] for status in (400, 401, 403, 404, 409, 422, 429, 500)},
}
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
FUNCTION = {"name": "run", "description": "runs it", "parameters": SCHEMA}
NATIVE: dict[str, list[Any] | None] = {
    "scripted_model": None,
    "converting": ["chat_completions"],
    "passing on": ["responses", "chat_completions", "messages"],
}


@pytest.fixture(params=NATIVE)
async def url(rig: Rig, request: pytest.FixtureRequest) -> str:
    """A server that says all of the above: itself, or from an endpoint that speaks some dialects."""
    rules = [Rule(when=f"^{name}$", steps=steps) for name, steps in STEPS.items()]
    await rig.add("endpoint", ScriptedModel, Config(rules=rules))
    endpoint = await rig.serve("endpoint")
    dialects = NATIVE[request.param]
    if dialects is None:
        return endpoint
    token = rig.credentials.token or ""
    config = OpenAIConfig(base_url=f"{endpoint}/v1", api_key=token, model="scripted", max_retries=0, dialects=dialects)
    made: type[Server] = OpenAIModel
    await rig.add("model", made, config)
    return await rig.serve("model")


@pytest.fixture
async def openai_client(rig: Rig, url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.credentials.token, max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic_client(rig: Rig, url: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=url, auth_token=rig.credentials.token, max_retries=0) as client:
        yield client


async def responded(client: openai.AsyncOpenAI, given: Any, *, stream: bool) -> Any:
    tools: Any = [{"type": "function", "strict": None, **FUNCTION}]
    if not stream:
        return await client.responses.create(model="m", input=given, tools=tools)
    async with client.responses.stream(model="m", input=given, tools=tools) as events:
        deltas = [event.delta async for event in events if event.type == "response.output_text.delta"]
        response = await events.get_final_response()
    assert "".join(deltas) == response.output_text
    return response


async def completed(client: openai.AsyncOpenAI, messages: Any, *, stream: bool) -> Any:
    tools: Any = [{"type": "function", "function": FUNCTION}]
    if not stream:
        return await client.chat.completions.create(model="m", messages=messages, tools=tools)
    options: Any = {"include_usage": True}
    async with client.chat.completions.stream(model="m", messages=messages, tools=tools, stream_options=options) as events:
        deltas = [event.delta async for event in events if event.type == "content.delta"]
        completion = await events.get_final_completion()
    assert "".join(deltas) == (completion.choices[0].message.content or "")
    return completion


async def messaged(client: anthropic.AsyncAnthropic, messages: Any, *, stream: bool) -> Any:
    fields: dict[str, Any] = {
        "model": "m",
        "max_tokens": 99,
        "messages": messages,
        "tools": [{"name": "run", "description": "runs it", "input_schema": SCHEMA}],
    }
    if not stream:
        return await client.messages.create(**fields)
    async with client.messages.stream(**fields) as events:
        deltas = [event.text async for event in events if event.type == "text"]
        message = await events.get_final_message()
    assert "".join(deltas) == "".join(block.text for block in message.content if block.type == "text")
    return message


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@streams
async def test_responses(openai_client: openai.AsyncOpenAI, stream: bool) -> None:
    response = await responded(openai_client, user("text"), stream=stream)
    thought, said = response.output
    assert (thought.content[0].text, said.content[0].text, response.status) == ("hm", "Grüße 😀 and more", "completed")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    refused = await responded(openai_client, user("refusal"), stream=stream)
    assert refused.output[0].content[0].refusal == "I will not"
    if stream:  # the accumulator of this SDK knows no end but response.completed
        events: Any = await openai_client.responses.create(model="m", input=user("cut"), stream=True)
        cut = [event async for event in events][-1].response
    else:
        cut = await responded(openai_client, user("cut"), stream=stream)
    assert (cut.status, cut.incomplete_details.reason, cut.output_text) == ("incomplete", "max_output_tokens", "half a")


@streams
async def test_a_tool_loop_over_responses(openai_client: openai.AsyncOpenAI, stream: bool) -> None:
    history: list[Any] = user("tools")
    response = await responded(openai_client, history, stream=stream)
    calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("run", {"cmd": "ls é"}), ("run", {})]
    history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]
    assert (await responded(openai_client, history, stream=stream)).output_text == "done"


@streams
async def test_chat_completions(openai_client: openai.AsyncOpenAI, stream: bool) -> None:
    if stream:
        completion = await completed(openai_client, user("text"), stream=stream)
        assert completion.usage.total_tokens > 0
    else:
        completion = await openai_client.chat.completions.create(model="m", messages=user("text"), n=2)
        assert len(completion.choices) == 2
    message = completion.choices[-1].message
    assert (message.content, completion.choices[0].finish_reason) == ("Grüße 😀 and more", "stop")
    assert message.model_extra["reasoning_content"] == "hm"
    refused = await completed(openai_client, user("refusal"), stream=stream)
    assert refused.choices[0].message.refusal == "I will not"


@streams
async def test_a_tool_loop_over_chat_completions(openai_client: openai.AsyncOpenAI, stream: bool) -> None:
    history: list[Any] = user("tools")
    message = (await completed(openai_client, history, stream=stream)).choices[0].message
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"cmd": "ls é"}, {}]
    history.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
    history += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in message.tool_calls]
    assert (await completed(openai_client, history, stream=stream)).choices[0].message.content == "done"


@streams
async def test_messages(anthropic_client: anthropic.AsyncAnthropic, stream: bool) -> None:
    message = await messaged(anthropic_client, user("text"), stream=stream)
    thought, said = message.content
    assert (thought.thinking, said.text, message.stop_reason) == ("hm", "Grüße 😀 and more", "end_turn")
    assert min(message.usage.input_tokens, message.usage.output_tokens) > 0
    assert (await messaged(anthropic_client, user("refusal"), stream=stream)).stop_reason == "refusal"
    assert (await messaged(anthropic_client, user("cut"), stream=stream)).stop_reason == "max_tokens"


@streams
async def test_a_tool_loop_over_messages(anthropic_client: anthropic.AsyncAnthropic, stream: bool) -> None:
    history: list[Any] = user("tools")
    message = await messaged(anthropic_client, history, stream=stream)
    assert ([block.input for block in message.content], message.stop_reason) == ([{"cmd": "ls é"}, {}], "tool_use")
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "ok"} for block in message.content]
    history += [{"role": "assistant", "content": [block.model_dump() for block in message.content]}, {"role": "user", "content": results}]
    assert (await messaged(anthropic_client, history, stream=stream)).content[0].text == "done"


@streams
async def test_refused_requests_are_the_sdks_typed_errors(
    openai_client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic, stream: bool
) -> None:
    names = {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        409: "ConflictError",
        422: "UnprocessableEntityError",
        429: "RateLimitError",
        500: "InternalServerError",
    }
    asking = ((responded, openai_client, openai), (completed, openai_client, openai), (messaged, anthropic_client, anthropic))
    for status, name in names.items():
        for ask, client, sdk in asking:
            with pytest.raises(getattr(sdk, name), match=f"the script answers {status}"):
                await ask(client, user(f"status {status}"), stream=stream)  # type: ignore[operator]


async def test_a_stream_that_breaks_is_an_error_to_every_client(
    openai_client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    asking = ((responded, openai_client, openai), (completed, openai_client, openai), (messaged, anthropic_client, anthropic))
    for ask, client, sdk in asking:
        for how, told in (("drop", "Connection error|incomplete|closed|broke"), ("error", "the script breaks off")):
            with pytest.raises((sdk.APIError, httpx2.RemoteProtocolError), match=told):
                await ask(client, user(how), stream=True)  # type: ignore[operator]
