"""`scripted_model`, and `openai_model` before a real endpoint that misbehaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_api_models.openai_model.app import OpenAIModel
from responses_api_models.openai_model.config import Config as OpenAIConfig
from responses_api_models.scripted_model.app import ScriptedModel, turns_taken
from responses_api_models.scripted_model.config import Config as ScriptedConfig
from tests.unit.servers.conftest import Rig

KEY = "sk-secret-key-of-the-run"
GOOD = {"id": "r", "object": "response", "output": [], "unknown": {"kept": 1}}


class Endpoint:
    """An upstream that answers what it is told; the last answer stays."""

    def __init__(self) -> None:
        self.answers: list[Any] = [GOOD]
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.in_flight = self.most = 0
        self.left = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else None
        self.requests.append((request.path, dict(request.headers), body))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return await self._answer(request, answer)
        except asyncio.CancelledError:
            self.left.set()
            raise
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, answer: Any) -> web.StreamResponse:
        if answer == "hang":
            await asyncio.sleep(60)
        if answer == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer in ("stream", "short"):
            headers = {"content-type": "text/event-stream"} if answer == "stream" else {"content-length": "100"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            await response.write(b"data: first\n\n")
            if answer == "short":
                assert request.transport is not None
                request.transport.abort()
                return response
            await self.go_on.wait()
            await response.write(b"data: \xff\xfe last\n\n")
            return response
        if answer == "slow":
            await asyncio.sleep(0.03)
            return web.json_response(GOOD)
        if isinstance(answer, tuple):
            status, text, headers = answer
            return web.Response(status=status, text=text, headers=headers)
        return web.json_response(answer)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    made.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield made
    await runner.cleanup()


async def model(rig: Rig, endpoint: Any, **config: Any) -> OpenAIModel:
    fields = {"base_url": f"http://127.0.0.1:{endpoint.port}/v1", "api_key": KEY, "model": "m", "max_retries": 2, **config}
    server: OpenAIModel = await rig.add("model", OpenAIModel, OpenAIConfig(**fields))
    server._upstream.base_delay = 0.01
    return server


ROUTES = ("/v1/responses", "/v1/chat/completions", "/v1/messages")


@pytest.mark.parametrize("route", ROUTES)
async def test_each_dialect_goes_on_to_its_own_route(rig: Rig, endpoint: Endpoint, route: str) -> None:
    await model(rig, endpoint, extra_headers={"x-extra": "1"})
    reply = await rig.call("model", f"/ng-rollout/r1{route}", {"input": "q", "model": "other", "odd": [1]})
    assert (reply.status, reply.json()) == (200, GOOD)
    path, headers, body = endpoint.requests[0]
    assert (path, body) == (route, {"input": "q", "model": "m", "odd": [1]})
    assert (headers["Authorization"], headers["x-extra"]) == (f"Bearer {KEY}", "1")


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_end_it_at_once(rig: Rig, endpoint: Endpoint, status: int) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(status, f'{{"error": "Incorrect API key provided: {KEY}"}}', {})]
    reply = await rig.call("model", "/v1/responses", {})
    error = reply.json()["error"]
    assert (reply.status, error["type"], error["terminal"]) == (status, "openai_model:credentials_refused", True)
    assert len(endpoint.requests) == 1
    assert KEY not in reply.body.decode()


async def test_what_passes_is_tried_again_and_retry_after_honoured(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(429, "slow down", {"retry-after": "0.2"}), (503, "", {}), GOOD]
    began = asyncio.get_running_loop().time()
    assert (await rig.call("model", "/v1/responses", {})).status == 200
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_tries_are_bounded_and_the_last_answer_told(rig: Rig, endpoint: Endpoint, status: int) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(status, "busy", {})]
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["terminal"], len(endpoint.requests)) == (status, False, 3)
    assert "busy" in reply.json()["error"]["message"]


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_bad_request_is_not_tried_again(rig: Rig, endpoint: Endpoint, status: int) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(status, "context length exceeded", {})]
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["terminal"], len(endpoint.requests)) == (status, True, 1)


@pytest.mark.parametrize("broken", ["drop", "short"])
async def test_a_connection_that_breaks_is_tried_again(rig: Rig, endpoint: Endpoint, broken: str) -> None:
    await model(rig, endpoint)
    endpoint.answers = [broken, broken, GOOD]
    assert (await rig.call("model", "/v1/responses", {})).json() == GOOD
    endpoint.answers = [broken]
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["type"]) == (502, "transport_peer_drop")


async def test_an_endpoint_that_is_not_there(rig: Rig) -> None:
    class Nowhere:
        port = 1

    await model(rig, Nowhere())
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["type"], reply.json()["error"]["terminal"]) == (502, "transport_unreachable", False)


async def test_no_answer_is_a_time_out_and_not_tried_again(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint, timeout_seconds=0.1)
    endpoint.answers = ["hang"]
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["type"], len(endpoint.requests)) == (504, "transport_timeout", 1)


@pytest.mark.parametrize("text", ["<html>", "", "[1]", "null"])
async def test_garbage_is_an_error(rig: Rig, endpoint: Endpoint, text: str) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(200, text, {})]
    reply = await rig.call("model", "/v1/responses", {})
    assert (reply.status, reply.json()["error"]["type"]) == (502, "agent_request_failed")


async def test_a_stream_is_passed_through_byte_by_byte_as_it_comes(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(503, "", {}), "stream"]
    url = await rig.serve("model")
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(f"{url}/v1/responses", json={"stream": True}) as reply,
    ):
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        assert await reply.content.readany() == b"data: first\n\n"  # before the last is sent
        endpoint.go_on.set()
        assert await reply.read() == b"data: \xff\xfe last\n\n"


async def test_an_error_before_a_stream_begins_is_an_error(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(401, "", {})]
    reply = await rig.call("model", "/v1/chat/completions", {"stream": True})
    assert (reply.status, reply.json()["error"]["type"]) == (401, "openai_model:credentials_refused")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_call_upstream(rig: Rig, endpoint: Endpoint, stream: bool) -> None:
    await model(rig, endpoint)
    endpoint.answers = ["stream" if stream else "hang"]
    url = await rig.serve("model")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        calling = asyncio.ensure_future(session.post(f"{url}/v1/responses", json={"stream": stream}))
        await asyncio.sleep(0.2)
        if stream:
            (await calling).close()
        else:
            calling.cancel()
        async with asyncio.timeout(3):
            await endpoint.left.wait()


async def test_max_concurrency_holds_until_the_whole_answer_was_read(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint, max_concurrency=2)
    endpoint.answers = ["slow"]
    replies = await asyncio.gather(*(rig.call("model", "/v1/responses", {}) for _ in range(8)))
    assert {reply.status for reply in replies} == {200}
    assert endpoint.most == 2
    endpoint.answers = ["stream"]
    url = await rig.serve("model")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        streams = [await session.post(f"{url}/v1/responses", json={"stream": True}) for _ in range(2)]
        third = asyncio.ensure_future(session.post(f"{url}/v1/responses", json={"stream": True}))
        await asyncio.sleep(0.1)
        assert (endpoint.in_flight, third.done()) == (2, False)
        streams[0].close()
        (await asyncio.wait_for(third, 3)).close()
        streams[1].close()


async def test_the_list_of_models_is_the_endpoints_own(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint)
    endpoint.answers = [{"data": [{"id": "m"}]}]
    assert (await rig.call("model", "/ng-rollout/r1/v1/models")).json() == {"data": [{"id": "m"}]}
    endpoint.answers = [(404, "", {})]
    assert (await rig.call("model", "/v1/models")).status == 404


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
