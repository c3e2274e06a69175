"""What goes by way of Chat Completions, what is asked of engines, and several endpoints as one."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from gym.client import CallError
from gym.models.sse import SSEParser
from responses_api_models.openai_model.app import OpenAIModel
from responses_api_models.openai_model.config import Config as OpenAIConfig
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.config import Config as VLLMConfig
from tests.unit.servers.conftest import Rig
from tests.unit.servers.endpoint import Endpoint, serving

OVERFLOW = {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def piece(text: str, finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish, **fields}
    return b"data: " + json.dumps({"id": "c", "model": "m", "usage": None, "choices": [choice]}).encode() + b"\n\n"


def engine_piece(text: str, ids: list[int], finish: str | None = None, prompt: list[int] | None = None) -> bytes:
    """A chunk as vLLM sends it when it is asked for token ids."""
    log_probs = {"content": [{"token": "t", "logprob": -0.5 * number, "bytes": None, "top_logprobs": []} for number in ids]}
    chunk = json.loads(piece(text, finish, token_ids=ids, logprobs=log_probs)[6:])
    return b"data: " + json.dumps(chunk | ({"prompt_token_ids": prompt} if prompt else {})).encode() + b"\n\n"


async def openai(rig: Rig, *endpoints: Endpoint, **config: Any) -> OpenAIModel:
    return await rig.add("model", OpenAIModel, OpenAIConfig(**_fields(endpoints), dialects=["chat_completions"], **config))


async def vllm(rig: Rig, endpoint: Endpoint, **config: Any) -> VLLMModel:
    return await rig.add("model", VLLMModel, VLLMConfig(**_fields([endpoint]), **config))


def _fields(endpoints: Any) -> dict[str, Any]:
    return {"base_url": [f"http://127.0.0.1:{endpoint.port}/v1" for endpoint in endpoints], "model": "m", "max_retries": 2}


async def streamed(rig: Rig, route: str, body: dict[str, Any]) -> list[tuple[str | None, Any]]:
    """The events of a streamed call, their data parsed."""
    reply = await rig.call("model", route, {**body, "stream": True})
    assert reply.status == 200, reply.body
    return [(event.event, event.data if event.data == "[DONE]" else json.loads(event.data)) for event in SSEParser().feed(reply.body)]


ASK: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10},
}


@pytest.mark.parametrize("route", ASK)
async def test_every_dialect_goes_by_way_of_chat_and_comes_back(rig: Rig, endpoint: Endpoint, route: str) -> None:
    await openai(rig, endpoint)
    endpoint.answers = [COMPLETION]
    reply = (await rig.call("model", route, ASK[route])).json()
    path, _, sent = endpoint.requests[0]
    assert (path, sent["messages"], sent["model"]) == ("/v1/chat/completions", [{"role": "user", "content": "hi"}], "m")
    text = {
        "/v1/responses": lambda: reply["output"][0]["content"][0]["text"],
        "/v1/chat/completions": lambda: reply["choices"][0]["message"]["content"],
        "/v1/messages": lambda: reply["content"][0]["text"],
    }[route]()
    assert (text, reply["usage"].get("output_tokens", reply["usage"].get("completion_tokens"))) == ("hello", 2)


async def test_a_converted_stream_is_sent_event_by_event(rig: Rig, endpoint: Endpoint) -> None:
    await openai(rig, endpoint)
    endpoint.answers = [[piece("hel"), "wait", piece("lo", "stop") + USAGE + DONE]]
    url = await rig.serve("model")
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(f"{url}/v1/messages", json={**ASK["/v1/messages"], "stream": True}) as reply,
    ):
        parser, early = SSEParser(), list[str | None]()
        while "content_block_delta" not in early:  # while the endpoint still holds back the rest
            early += [event.event for event in parser.feed(await reply.content.readany())]
        endpoint.go_on.set()
        late = [event.event for event in parser.feed(await reply.read())]
    assert early[:2] == ["message_start", "content_block_start"]
    assert late == ["content_block_delta", "content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("cut", [1, 7, 10_000])
async def test_usage_is_always_counted_and_shown_to_those_who_asked(rig: Rig, endpoint: Endpoint, end: bytes, cut: int) -> None:
    await openai(rig, endpoint)
    tricky = '"choices":[] "usage":{}'
    whole = (piece(tricky) + piece("", "stop") + USAGE + DONE).replace(b"\n\n", end)
    endpoint.answers = [[whole[start : start + cut] for start in range(0, len(whole), cut)]]
    body = ASK["/v1/chat/completions"]
    hidden = await rig.call("model", "/v1/chat/completions", {**body, "stream": True})
    shown = await rig.call("model", "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert all(sent["stream_options"] == {"include_usage": True} for _, _, sent in endpoint.requests)
    assert shown.body == whole
    assert hidden.body == whole.replace(USAGE.replace(b"\n\n", end), b"")


@pytest.mark.parametrize("route", ASK)
@pytest.mark.parametrize("end", [[], ["abort"], [b'data: {"error": {"message": "engine died", "code": 500}}\n\n' + DONE]])
async def test_a_stream_that_breaks_ends_as_an_error_of_the_dialect(rig: Rig, endpoint: Endpoint, route: str, end: list[Any]) -> None:
    await vllm(rig, endpoint, return_token_id_information=True)
    endpoint.answers = [[engine_piece("hel", [1], prompt=[5, 6]), *end]]
    url = await rig.serve("model")
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(f"{url}{route}", json={**ASK[route], "stream": True}) as reply,
    ):
        received = b""
        with contextlib.suppress(aiohttp.ClientError):
            while data := await reply.content.readany():
                received += data
    events = SSEParser().feed(received)
    last = json.loads(events[-1].data)
    assert last.get("type") in ("response.failed", "error") or "error" in last
    assert "[DONE]" not in [event.data for event in events]
    assert len(endpoint.requests) == 1


async def test_token_ids_of_a_stream_are_noted_and_left_out_for_others(rig: Rig, endpoint: Endpoint) -> None:
    server = await vllm(rig, endpoint)
    server.wants_tokens = lambda call: True  # type: ignore[method-assign]
    noted: list[Any] = []
    original = server.answer

    async def watched(call: Any, dialect: Any) -> Any:
        noted.append(call.notes)
        return await original(call, dialect)

    server.answer = watched  # type: ignore[method-assign]
    chunks = [engine_piece("a", [7], prompt=[5, 6]), engine_piece("bc", [8, 9], "stop"), USAGE.replace(b":2", b":3"), DONE]
    endpoint.answers = [chunks]
    events = await streamed(rig, "/v1/chat/completions", ASK["/v1/chat/completions"])
    assert (noted[0].tokens.prompt, noted[0].tokens.generation) == ([5, 6], [7, 8, 9])
    assert noted[0].tokens.log_probs == [-3.5, -4.0, -4.5]
    assert not any("token_ids" in json.dumps(data) or "logprob" in json.dumps(data) for _, data in events)
    asked = {**ASK["/v1/chat/completions"], "return_token_ids": True, "logprobs": True}
    assert "token_ids" in json.dumps(await streamed(rig, "/v1/chat/completions", asked))
    endpoint.answers = [[*chunks[:1], *chunks[2:]]]  # one that ends without a finish_reason
    with pytest.raises(CallError):
        await streamed(rig, "/v1/chat/completions", ASK["/v1/chat/completions"])
    assert noted[-1].tokens is None


@pytest.mark.parametrize("route", ASK)
async def test_whole_replies_carry_token_ids_where_that_is_wanted(rig: Rig, endpoint: Endpoint, route: str) -> None:
    await vllm(rig, endpoint, return_token_id_information=True)
    log_probs = {"content": [{"logprob": -0.5}, {"logprob": -0.25}]}
    choice = {**COMPLETION["choices"][0], "token_ids": [7, 8], "logprobs": log_probs}
    endpoint.answers = [{**COMPLETION, "choices": [choice], "prompt_token_ids": [1, 2, 3]}]
    reply = (await rig.call("model", route, ASK[route])).json()
    assert all(endpoint.requests[0][2][name] is True for name in ("return_token_ids", "logprobs"))
    ids = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -0.25]}
    if route == "/v1/messages":
        assert "token_ids" not in json.dumps(reply)  # the dialect has no place for them
    else:
        last = reply["output"][-1] if route == "/v1/responses" else reply["choices"][0]["message"]
        assert {name: last[name] for name in ids} == ids


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_ends_the_turn_as_length(rig: Rig, endpoint: Endpoint, stream: bool) -> None:
    await openai(rig, endpoint)
    endpoint.answers = [(400, json.dumps({"error": OVERFLOW}), {})]
    if stream:
        events = await streamed(rig, "/v1/responses", ASK["/v1/responses"])
        kind, data = events[-1]
        reply = data["response"]
        assert kind == "response.incomplete"
    else:
        reply = (await rig.call("model", "/v1/responses", ASK["/v1/responses"])).json()
    assert (reply["status"], reply["incomplete_details"]["reason"]) == ("incomplete", "max_output_tokens")
    assert len(endpoint.requests) == 1


async def test_or_is_the_endpoints_error_where_that_is_wanted(rig: Rig, endpoint: Endpoint) -> None:
    await openai(rig, endpoint, context_overflow="error")
    endpoint.answers = [(400, json.dumps({"error": OVERFLOW}), {})]
    reply = await rig.call("model", "/v1/responses", ASK["/v1/responses"])
    assert (reply.status, "too long" in reply.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(("tokens", "over"), [(16, True), (15, False)])
async def test_vllm_tells_an_overflow_by_its_own_count(rig: Rig, endpoint: Endpoint, tokens: int, over: bool) -> None:
    await vllm(rig, endpoint)
    endpoint.answers = [(400, '{"error": {"message": "anything at all", "code": 400}}', {})]
    endpoint.routes["/tokenize"] = {"tokens": list(range(tokens)), "count": tokens, "max_model_len": 16}
    reply = await rig.call("model", "/v1/chat/completions", ASK["/v1/chat/completions"])
    assert reply.status == (200 if over else 400)
    if over:
        choice = reply.json()["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"], reply.json()["usage"]["prompt_tokens"]) == ("length", "", 16)


async def test_what_is_configured_goes_with_each_request(rig: Rig, endpoint: Endpoint) -> None:
    fields: dict[str, Any] = {"extra_body": {"top_k": 5, "seed": 1}, "sampling_overrides": {"temperature": 0}}
    await vllm(rig, endpoint, chat_template_kwargs={"enable_thinking": False, "a": 1}, **fields)
    endpoint.answers = [COMPLETION]
    body = {**ASK["/v1/chat/completions"], "seed": 7, "temperature": 1, "chat_template_kwargs": {"a": 2}}
    await rig.call("model", "/v1/chat/completions", body)
    sent = endpoint.requests[0][2]
    assert (sent["top_k"], sent["seed"], sent["temperature"]) == (5, 7, 0)
    assert sent["chat_template_kwargs"] == {"enable_thinking": False, "a": 2}


async def test_headers_of_the_configuration_go_first_whatever_their_case(rig: Rig, endpoint: Endpoint) -> None:
    await openai(rig, endpoint, extra_headers={"Authorization": "Basic abc"})
    endpoint.answers = [COMPLETION]
    await rig.call("model", "/v1/chat/completions", ASK["/v1/chat/completions"])
    assert [value for name, value in endpoint.requests[0][1].items() if name.lower() == "authorization"] == ["Basic abc"]


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": "many", "completion_tokens": None}, "none", {"prompt_tokens": -1}, {"prompt_tokens": 1e300}]
)
@pytest.mark.parametrize("route", ASK)
async def test_usage_that_counts_nothing_is_none(rig: Rig, endpoint: Endpoint, route: str, usage: Any) -> None:
    await openai(rig, endpoint)
    endpoint.answers = [{**COMPLETION, "usage": usage}]
    assert (await rig.call("model", route, ASK[route])).status == 200
    assert (await rig.call("model", f"/ng-rollout/r1{route}", ASK[route])).status == 200
    report = (await rig.call("model", "/ng-rollout/r1/v1/capture/close", {})).json()
    assert (report["metrics"]["num_calls"], report["gaps"]) == (1, [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", "http://user:secret@host/v1"),
        ("api_key", "a\nb"),
        ("extra_body", {"stream": True}),
        ("sampling_overrides", {"model": "other"}),
    ],
)
def test_what_would_break_every_call_is_refused_and_not_repeated(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as refused:
        OpenAIConfig.model_validate({"base_url": "http://h/v1", "model": "m", field: value})
    assert "secret" not in refused.value.errors(include_url=False, include_input=False)[0]["msg"]  # type: ignore[attr-defined]


async def test_rollouts_keep_to_their_endpoint_until_it_dies(rig: Rig) -> None:
    async with serving() as one, serving() as two:
        both, rollouts = [one, two], [f"r{number}" for number in range(20)]
        for each in both:
            each.answers = [COMPLETION]
        await openai(rig, *both)

        async def ask(rollout: str) -> Any:
            return await rig.call("model", f"/ng-rollout/{rollout}/v1/chat/completions", ASK["/v1/chat/completions"])

        def seen() -> tuple[int, int]:
            return len(one.requests), len(two.requests)

        homes = dict[str, int]()
        for rollout in rollouts:
            before = seen()
            await ask(rollout)
            homes[rollout] = 0 if seen()[0] > before[0] else 1
        assert 0 < sum(homes.values()) < 20
        for rollout in rollouts:
            before = len(both[homes[rollout]].requests)
            await ask(rollout)
            assert len(both[homes[rollout]].requests) == before + 1
        one.answers = ["drop"]
        before = seen()
        began = asyncio.get_running_loop().time()
        for rollout in rollouts:
            assert (await ask(rollout)).status == 200
        assert seen() == (before[0] + 1, before[1] + 20)  # it is asked once, and then left alone
        assert asyncio.get_running_loop().time() - began < 5


async def test_calls_of_no_rollout_go_where_there_is_least_to_do(rig: Rig) -> None:
    async with serving() as one, serving() as two:
        one.answers, two.answers = ["slow"], ["slow"]
        await openai(rig, one, two)
        await asyncio.gather(*(rig.call("model", "/v1/chat/completions", ASK["/v1/chat/completions"]) for _ in range(8)))
        assert (one.most, two.most) == (4, 4)
