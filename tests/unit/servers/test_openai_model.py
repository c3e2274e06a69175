"""`openai_model` before a real endpoint that misbehaves."""

import asyncio
from typing import Any

import aiohttp
import pytest

from responses_api_models.openai_model.app import OpenAIModel
from responses_api_models.openai_model.config import Config
from tests.unit.servers.conftest import Rig
from tests.unit.servers.endpoint import GOOD, Endpoint

KEY = "sk-secret-key-of-the-run"


async def model(rig: Rig, endpoint: Any, **config: Any) -> OpenAIModel:
    fields = {"base_url": f"http://127.0.0.1:{endpoint.port}/v1", "api_key": KEY, "model": "m", "max_retries": 2, **config}
    server: OpenAIModel = await rig.add("model", OpenAIModel, Config(**fields))
    server.endpoints._base_delay = 0.01
    return server


ROUTES = ("/v1/responses", "/v1/chat/completions", "/v1/messages")


@pytest.mark.parametrize("route", ROUTES)
async def test_each_dialect_goes_on_to_its_own_route(rig: Rig, endpoint: Endpoint, route: str) -> None:
    await model(rig, endpoint, extra_headers={"x-extra": "1"}, dialects=["responses", "chat_completions", "messages"])
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
    assert (reply.status, error["type"], error["terminal"]) == (status, "model:credentials_refused", True)
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
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        assert await reply.content.readany() == b"data: first\n\n"  # before the last is sent
        endpoint.go_on.set()
        assert await reply.read() == b"data: \xff\xfe last\n\n"


async def test_an_error_before_a_stream_begins_is_an_error(rig: Rig, endpoint: Endpoint) -> None:
    await model(rig, endpoint)
    endpoint.answers = [(401, "", {})]
    reply = await rig.call("model", "/v1/chat/completions", {"stream": True})
    assert (reply.status, reply.json()["error"]["type"]) == (401, "model:credentials_refused")


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
