"""Model servers record what is asked of them below a rollout's prefix: every dialect, streamed and whole, whatever goes wrong."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from gym.models.calls import Dialect, ModelCall, TokenIds
from gym.models.capture.folder import CaptureFolder
from gym.models.capture.records import read_calls
from gym.models.dialects.assemble import assembler
from gym.models.sse import KEEP_ALIVE, SSEEvent, SSEParser, encode
from gym.protocol.errors import ContractError
from gym.servers import ModelServer
from gym.servers.event_stream import EventStream
from gym.servers.http import Call, Stream
from responses_api_models.openai_model.app import OpenAIModel
from responses_api_models.openai_model.config import Config as OpenAIConfig
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config
from tests.unit.servers.conftest import Rig
from tests.unit.servers.endpoint import Endpoint

PREFIX = "/ng-rollout/r1"
ROUTES: dict[Dialect, str] = {"responses": "/v1/responses", "chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
dialects = pytest.mark.parametrize("dialect", list(ROUTES))
streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def body(dialect: Dialect, step: Any = None, **fields: Any) -> dict[str, Any]:
    script = json.dumps([step or {"say": "Grüße 😀", "think": "hm"}])
    return {
        "input" if dialect == "responses" else "messages": [{"role": "user", "content": "go"}],
        "metadata": {"script": script},
        **fields,
    }


async def scripted(rig: Rig, **fields: Any) -> ScriptedModel:
    return await rig.add("model", ScriptedModel, Config(**fields))


async def recorded(rig: Rig, key: str = "r1") -> list[ModelCall]:
    """The record as a control client gets it."""
    reply = await rig.call("model", f"/ng-rollout/{key}/v1/capture")
    assert reply.status == 200, reply.body
    return read_calls(reply.body.splitlines())


async def close(rig: Rig, prefix: str = PREFIX, **fields: Any) -> Any:
    reply = await rig.call("model", f"{prefix}/v1/capture/close", {"session_id": "s", **fields})
    assert reply.status == 200, reply.body
    return reply.json()


@dialects
@streams
async def test_a_call_is_recorded_as_it_was_made_and_answered(rig: Rig, dialect: Dialect, stream: bool) -> None:
    await scripted(rig)
    sent = body(
        dialect, {"calls": [{"name": "f", "arguments": {"x": "é"}}], "think": "hm"}, odd={"kept": 1}, **({"stream": True} if stream else {})
    )
    if stream and dialect == "chat_completions":
        sent["stream_options"] = {"include_usage": True}
    reply = await rig.call("model", PREFIX + ROUTES[dialect], sent)
    (call,) = await recorded(rig)
    assert (call.request, call.dialect, call.streamed, call.index) == (sent, dialect, stream, 0)
    if stream:
        reading = assembler(dialect)
        for event in SSEParser().feed(reply.body):
            reading.add(event)
        assert call.response == reading.result()
        assert call.first_token_ms is not None
    else:
        assert call.response == reply.json()
    assert (call.status, call.complete, call.error_category, call.finish_reason) == (200, True, None, "tool_calls")
    assert None not in (call.input_tokens, call.output_tokens, call.latency_ms)
    assert call.input_tokens
    assert call.output_tokens


@dialects
@streams
async def test_the_record_is_written_before_the_end_is_released(rig: Rig, tmp_path: Path, dialect: Dialect, stream: bool) -> None:
    server = await scripted(rig)
    file = tmp_path / "captures" / "model" / "r1.jsonl"
    seen: list[tuple[bytes, bool]] = []
    request = [{"type": "http.request", "body": orjson.dumps(body(dialect, stream=stream))}]

    async def receive() -> Any:
        return request.pop() if request else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            seen.append((message["body"], b'{"end":' in await asyncio.to_thread(file.read_bytes)))

    headers = [(name.encode(), value.encode()) for name, value in rig.credentials.headers().items()]
    await server.app()({"type": "http", "method": "POST", "path": PREFIX + ROUTES[dialect], "headers": headers}, receive, send)
    if not stream:
        assert [ended for _, ended in seen] == [True]
        return
    last = {"responses": b"response.completed", "chat_completions": b"[DONE]", "messages": b"message_stop"}[dialect]
    assert [ended for piece, ended in seen if last in piece] == [True]
    assert not seen[0][1]


async def test_calls_without_a_prefix_are_nobodys(rig: Rig, tmp_path: Path) -> None:
    await scripted(rig)
    for stream in (True, False):
        assert (await rig.call("model", ROUTES["responses"], body("responses", stream=stream))).status == 200
    assert not (tmp_path / "captures").exists()
    assert (await rig.call("model", "/v1/capture/close", {"session_id": "s"})).status == 422


async def test_the_life_of_a_record(rig: Rig) -> None:
    await scripted(rig)
    assert (await rig.call("model", f"{PREFIX}/v1/capture")).status == 404
    for _ in range(3):
        await rig.call("model", PREFIX + ROUTES["messages"], body("messages"))
    report = await close(rig, keep=True)
    assert [call["call_index"] for call in report["calls"]] == [0, 1, 2]
    assert report["metrics"]["num_calls"] == 3
    assert len(await recorded(rig)) == 3
    assert (await rig.call("model", f"{PREFIX}/v1/capture", method="DELETE")).status == 200
    assert (await rig.call("model", f"{PREFIX}/v1/capture")).status == 404
    late = await rig.call("model", PREFIX + ROUTES["messages"], body("messages"))
    assert (late.status, late.json()["error"]["type"], late.json()["type"]) == (410, "session_lost", "error")
    late = await rig.call("model", PREFIX + ROUTES["messages"], body("messages", stream=True))
    assert (late.status, late.headers["content-type"]) == (410, "application/json")
    assert await close(rig, keep=True) == report
    assert (await rig.call("model", f"{PREFIX}/v1/capture/open", {"session_id": "s2"})).status == 200
    assert (await rig.call("model", PREFIX + ROUTES["messages"], body("messages"))).status == 200


FAILED = {400: "client_error", 401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 500: "upstream_error"}


@dialects
@streams
async def test_refusals_are_told_in_the_dialects_form_and_recorded(rig: Rig, dialect: Dialect, stream: bool) -> None:
    await scripted(rig)
    for status in FAILED:
        reply = await rig.call("model", PREFIX + ROUTES[dialect], body(dialect, {"status": status, "retry_after": 3}, stream=stream))
        error = reply.json()["error"]
        assert (reply.status, reply.headers["retry-after"], error["message"]) == (status, "3", f"the script answers {status}")
        assert (reply.json().get("type") == "error", "param" in error) == (dialect == "messages", dialect != "messages")
        assert (reply.headers.get("x-should-retry") == "false") == error["terminal"]
    calls = await recorded(rig)
    assert [(call.status, call.error_category) for call in calls] == list(FAILED.items())
    assert all(call.complete and call.finish_reason is None and call.error == f"the script answers {call.status}" for call in calls)


class Told(ModelServer):
    """Does what its body says, streams slowly, and knows when it was cancelled."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.began, self.go_on, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def responses(self, call: Call) -> Any:
        what = call.json().get("do")
        if what == "break":
            raise RuntimeError("inside, token=abcdefghijkl")
        if what == "unreachable":
            raise ContractError(502, "nobody there", kind="transport_unreachable")
        if what == "failed":
            return {"id": "r", "status": "failed", "error": {"message": "it failed"}}
        if what == "no json":
            return call.body[:3]
        if what == "tokens":
            call.notes.tokens = TokenIds([1, 2], [3], [-0.5])
            return {"id": "r", "status": "completed", "output": [said("hello")]}
        if what == "stream":
            return Stream(self._write)
        try:
            self.began.set()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if what == "late error":
            raise ContractError(429, "too late", kind="agent_request_failed")
        return Stream(self._write)

    async def _write(self, send: Any) -> int:
        out = EventStream(send)
        try:
            await out.events([event("response.created", {"id": "r", "status": "in_progress", "output": []})])
            await out.events([SSEEvent(None, json.dumps({"type": "response.output_item.added", "output_index": 0, "item": said("half")}))])
            self.began.set()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await out.events([event("response.completed", {"id": "r", "status": "completed", "output": [said("whole")]})])
        await out.end()
        return 200


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def event(kind: str, response: dict[str, Any]) -> SSEEvent:
    return SSEEvent(kind, json.dumps({"type": kind, "response": response}))


async def test_what_breaks_within_is_told_from_what_breaks_behind(rig: Rig) -> None:
    await rig.add("model", Told)
    for what, status, category, error in (
        ("break", 500, "exception", "RuntimeError: inside, token=[redacted]"),
        ("unreachable", 502, "connection", "nobody there"),
        ("failed", 200, "upstream_error", "it failed"),
        ("no json", 200, "upstream_error", "the reply is no JSON object: '{\"d'"),
    ):
        for stream in (False, True):
            reply = await rig.call("model", PREFIX + ROUTES["responses"], {"do": what, "stream": stream})
            call = (await recorded(rig))[-1]
            assert (reply.status, call.status, call.error_category, call.error) == (status, status, category, error)
    reply = await rig.call("model", PREFIX + ROUTES["responses"], [1])
    assert (reply.status, reply.json()["error"]["type"]) == (422, "protocol_violation")
    assert (await rig.call("model", PREFIX + ROUTES["responses"], b"{")).status == 422


@dialects
@pytest.mark.parametrize("breaks", ["connection", "error"])
async def test_a_stream_that_breaks_keeps_what_there_was(rig: Rig, dialect: Dialect, breaks: str) -> None:
    await scripted(rig)
    url = await rig.serve("model")
    step = {"say": "words and words and words", "piece": 3, "breaks": breaks}
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(url + PREFIX + ROUTES[dialect], json=body(dialect, step, stream=True)) as reply,
    ):
        if breaks == "connection":
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()
        else:
            assert b"the script breaks off" in await reply.read()
    (call,) = await recorded(rig)
    assert (call.status, call.error_category) == (200, "stream_truncated" if breaks == "connection" else "upstream_error")
    assert "words" in json.dumps(call.response)
    assert call.output_tokens is None  # an unfinished reply's usage would be a guess


@pytest.mark.parametrize("what", ["wait", "stream"])
@streams
async def test_a_client_that_goes_away_is_on_record(rig: Rig, what: str, stream: bool) -> None:
    server: Told = await rig.add("model", Told)
    url = await rig.serve("model")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        asking = asyncio.ensure_future(session.post(url + PREFIX + ROUTES["responses"], json={"do": what, "stream": stream}))
        await server.began.wait()
        reply = None if what == "wait" else await asking
        if reply is None:
            asking.cancel()
        else:
            reply.close()
        await server.cancelled.wait()
    report = await close(rig, keep=True)
    (summary,) = report["calls"]
    assert (summary["error_category"], summary["complete"], summary["status_code"]) == ("cancelled", False, 499)
    assert summary["error"] == "the client went away, or the server was stopped"
    assert (report["metrics"]["num_failed_calls"], report["usage"], report["gaps"]) == (1, None, [])
    if what == "stream":
        response = (await recorded(rig))[0].response
        assert response is not None
        assert response["output"] == [said("half")]


@pytest.mark.parametrize("what", ["wait", "stream"])
async def test_the_close_ends_what_is_in_flight(rig: Rig, what: str) -> None:
    server: Told = await rig.add("model", Told)
    url = await rig.serve("model")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        asking = asyncio.ensure_future(session.post(url + PREFIX + ROUTES["responses"], json={"do": what, "stream": what == "stream"}))
        await server.began.wait()
        (summary,) = (await close(rig))["calls"]
        reply = await asking
        if what == "wait":
            assert (reply.status, (await reply.json())["error"]["type"]) == (410, "session_lost")
        else:
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()
    assert (summary["error_category"], summary["complete"]) == ("cancelled", False)
    assert server.cancelled.is_set()


async def first_bytes(reply: aiohttp.ClientResponse, wanted: bytes) -> bytes:
    got = b""
    while wanted not in got:
        got += await reply.content.readany()
    return got


async def test_a_silent_stream_is_kept_alive(rig: Rig) -> None:
    server: Told = await rig.add("model", Told, keep_alive_seconds=0.02)
    url = await rig.serve("model")
    async with (
        aiohttp.ClientSession(headers=rig.credentials.headers()) as session,
        session.post(url + PREFIX + ROUTES["responses"], json={"do": "wait", "stream": True}) as reply,
    ):
        got = await first_bytes(reply, KEEP_ALIVE * 2)  # the handler has not begun its answer
        assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        server.go_on.set()
        got += await reply.read()
    events = [json.loads(event.data)["type"] for event in SSEParser().feed(got)]
    assert events == ["response.created", "response.output_item.added", "response.completed"]
    (call,) = await recorded(rig)
    assert (call.complete, call.response) == (True, {"id": "r", "status": "completed", "output": [said("whole")]})


async def test_an_error_after_a_keep_alive_is_an_event(rig: Rig) -> None:
    server: Told = await rig.add("model", Told, keep_alive_seconds=0.02)
    url = await rig.serve("model")
    async with openai.AsyncOpenAI(base_url=f"{url}{PREFIX}/v1", api_key=rig.credentials.token, max_retries=0) as client:
        answering: Any = asyncio.ensure_future(
            client.responses.create(model="m", input="q", stream=True, extra_body={"do": "late error"}),
        )
        events = await answering  # the headers are here, before the handler has decided
        server.go_on.set()
        with pytest.raises(openai.APIError, match="too late"):
            async for _ in events:
                pass
    (call,) = await recorded(rig)
    assert (call.status, call.error_category) == (429, "rate_limit")


async def test_no_keep_alive_splits_an_event(rig: Rig) -> None:
    class Halves(Told):
        async def _write(self, send: Any) -> int:
            whole = encode(event("response.completed", {"id": "r", "status": "completed", "output": []}))
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            for piece in (whole[:-9], whole[-9:]):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0.1)
            await send({"type": "http.response.body", "body": b""})
            return 200

    await rig.add("model", Halves, keep_alive_seconds=0.01)
    reply = await rig.call("model", PREFIX + ROUTES["responses"], {"do": "stream", "stream": True})
    assert [json.loads(event.data)["type"] for event in SSEParser().feed(reply.body)] == ["response.completed"]
    assert reply.body.count(KEEP_ALIVE) > 2


async def test_a_budget_is_refused_without_a_second_try(rig: Rig) -> None:
    await scripted(rig, max_calls_per_rollout=1)
    url = await rig.serve("model")
    async with openai.AsyncOpenAI(base_url=f"{url}{PREFIX}/v1", api_key=rig.credentials.token, max_retries=3) as client:
        await client.chat.completions.create(model="m", **body("chat_completions"))
        with pytest.raises(openai.BadRequestError, match="max_calls_per_rollout is 1"):
            await client.chat.completions.create(model="m", **body("chat_completions"))
    assert len(await recorded(rig)) == 1
    assert (await close(rig))["budget_exhausted"] == "max_calls_per_rollout"


async def test_anthropics_header_is_a_bearer_token_on_model_routes_alone(rig: Rig) -> None:
    await scripted(rig)
    key = {"x-api-key": rig.credentials.rollout_token("r1") or ""}
    assert (await rig.call("model", PREFIX + ROUTES["messages"], body("messages"), **key)).status == 200
    assert (await rig.call("model", "/ng-rollout/r2" + ROUTES["messages"], body("messages"), **key)).status == 401
    assert (await rig.call("model", f"{PREFIX}/v1/capture", **key)).status == 401
    assert (await rig.call("model", f"{PREFIX}/v1/capture", **{"x-api-key": rig.credentials.token or ""})).status == 401


async def test_what_the_endpoint_did_is_on_record(rig: Rig, endpoint: Endpoint) -> None:
    url = f"http://127.0.0.1:{endpoint.port}/v1"
    await rig.add("model", OpenAIModel, OpenAIConfig(base_url=url, api_key="k", model="m", max_retries=2))
    endpoint.answers = [(503, "busy", {"retry-after": "0"}), {"id": "r", "status": "completed", "output": []}]
    await rig.call("model", PREFIX + ROUTES["responses"], body("responses"))
    (call,) = await recorded(rig)
    assert (call.notes.upstream_attempts, call.notes.upstream_status, call.notes.upstream) == (2, 200, url)
    (summary,) = (await close(rig))["calls"]
    assert (summary["upstream_attempts"], summary["upstream_status_code"]) == (2, 200)


@pytest.mark.parametrize("lost", [False, True])
async def test_tokens_are_told_at_the_close_or_the_rollout_is_masked(rig: Rig, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    await rig.add("model", Told)
    prefix = f"{PREFIX}/training-token-capture"
    append, lines = CaptureFolder.append, list[bytes]()

    def broken(self: CaptureFolder, key: str, line: bytes) -> None:
        lines.append(line)
        if lost and len(lines) == 2:
            raise OSError(28, "No space left on device")
        append(self, key, line)

    monkeypatch.setattr(CaptureFolder, "append", broken)
    reply = await rig.call("model", prefix + ROUTES["responses"], {"do": "tokens", "input": "q"})
    training = (await close(rig, prefix, response=reply.json()))["training"]
    if lost:
        assert (training["items"], training["masked_reason"]) == (None, "capture_incomplete")
    else:
        (item,) = training["items"]
        ids = [item[name] for name in ("prompt_token_ids", "generation_token_ids", "generation_log_probs")]
        assert (ids, training["masked_reason"]) == ([[1, 2], [3], [-0.5]], None)
