"""The edge of every server: methods, bodies, errors, streams, and clients that leave."""

import asyncio
import logging
from typing import Any

import aiohttp
import orjson
import pytest

from gym.client import CallError
from gym.protocol.errors import ContractError
from gym.servers import ModelServer
from gym.servers import http as module
from gym.servers.http import Call, Stream
from tests.unit.servers.conftest import Rig


class Odd(ModelServer):
    """Does what its body says."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()

    async def responses(self, call: Call) -> Any:
        what = call.json().get("do")
        if what == "hang":
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.cancelled.set()
        if what == "break":
            raise RuntimeError("inside, token=abcdefghijkl")
        if what == "relay":
            raise CallError("busy", kind="agent_request_failed", delivery="delivered", status=429, retry_after=7)
        if what in ("stream", "broken stream", "broken at once"):
            return Stream(lambda send: self._write(send, what))
        return {"got": call.json()}

    async def _write(self, send: Any, what: str) -> int:
        if what == "broken at once":
            raise ContractError(502, "the upstream is gone", kind="transport_peer_drop")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            if what == "broken stream":
                raise ContractError(502, "the upstream is gone", kind="transport_peer_drop")
            await self.go_on.wait()
            await send({"type": "http.response.body", "body": b"last"})
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 200


ROUTE = "/v1/responses"


@pytest.fixture
async def odd(rig: Rig) -> Odd:
    return await rig.add("odd", Odd)


async def test_errors_have_one_shape_whatever_is_wrong(rig: Rig, odd: Odd) -> None:
    send, auth = rig.transport.send, rig.credentials.headers()
    url = "http://odd.in-process"
    for method, path, body, status in (
        ("GET", ROUTE, b"", 405),
        ("PUT", ROUTE, b"{}", 405),
        ("POST", "/healthz", b"{}", 405),
        ("POST", "/nothing", b"{}", 404),
        ("POST", "/ng-rollout/bad key/v1/responses", b"{}", 404),
        ("POST", "/ng-rollout/k/status", b"{}", 404),
        ("POST", ROUTE, b"{", 422),
        ("POST", ROUTE, b"\xff", 422),
        ("POST", ROUTE, b'{"do": "break"}', 500),
        ("POST", "/v1/messages", b"{}", 501),
    ):
        reply = await send(method, url + path, auth, body)
        error = reply.json()["error"]
        assert reply.status == status, (method, path)
        assert set(error) - {"code", "param"} == {"message", "type", "terminal"}  # those two are the dialect's own
        assert error["message"]
        assert reply.headers["content-type"] == "application/json"


async def test_what_broke_inside_is_named_without_traceback_or_secret(rig: Rig, odd: Odd) -> None:
    reply = await rig.call("odd", ROUTE, {"do": "break"})
    said = {"message": "RuntimeError: inside, token=[redacted]", "type": "odd:internal_error", "terminal": False}
    assert reply.json()["error"] == {**said, "param": None, "code": None}


async def test_a_peers_refusal_keeps_status_kind_and_retry_after(rig: Rig, odd: Odd) -> None:
    reply = await rig.call("odd", ROUTE, {"do": "relay"})
    assert (reply.status, reply.headers["retry-after"], reply.json()["error"]["terminal"]) == (429, "7", False)


async def test_a_body_that_is_too_long_is_refused(rig: Rig, odd: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 2**20)
    url = await rig.serve("odd")
    long = b'"' + b"x" * 2**20 + b'"'
    auth = rig.credentials.headers()

    async def pieces() -> Any:
        for start in range(0, len(long), 2**16):
            yield long[start : start + 2**16]

    async with aiohttp.ClientSession(headers=auth) as session:
        for data in (long, pieces()):
            async with session.post(url + ROUTE, data=data) as reply:
                assert (reply.status, "longer than" in (await reply.json())["error"]["message"]) == (413, True)
        async with session.post(url + ROUTE, data=b"{}") as reply:
            assert reply.status == 200


async def test_a_request_without_token_is_refused_before_its_body_is_read(rig: Rig, odd: Odd) -> None:
    url = await rig.serve("odd")
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_client_that_leaves_before_its_body_is_complete_starts_nothing(rig: Rig, odd: Odd) -> None:
    """A half-sent body must not be taken for an empty one, which an old-form seed would accept."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {rig.credentials.token}".encode())]
    await odd.app()({"type": "http", "method": "POST", "path": ROUTE, "headers": headers}, receive, send)
    assert sent[0]["status"] == 400


async def test_a_client_that_leaves_cancels_its_call(rig: Rig, odd: Odd) -> None:
    url = await rig.serve("odd")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        with pytest.raises(TimeoutError):
            await session.post(url + ROUTE, data=b'{"do": "hang"}', timeout=aiohttp.ClientTimeout(total=0.1))
    async with asyncio.timeout(3):
        await odd.cancelled.wait()


async def test_a_stream_is_passed_on_as_it_comes_and_ends_with_its_client(rig: Rig, odd: Odd) -> None:
    url = await rig.serve("odd")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session:
        async with session.post(url + ROUTE, data=b'{"do": "stream"}') as reply:
            assert await reply.content.readany() == b"first"  # before the last is sent
            odd.go_on.set()
            assert await reply.read() == b"last"
        odd.go_on.clear()
        async with session.post(url + ROUTE, data=b'{"do": "stream"}') as reply:
            assert await reply.content.readany() == b"first"
            reply.close()
    async with asyncio.timeout(3):
        await odd.cancelled.wait()


@pytest.mark.parametrize("over_http", [True, False])
async def test_a_stream_that_breaks_is_a_broken_connection(rig: Rig, odd: Odd, over_http: bool, caplog: pytest.LogCaptureFixture) -> None:
    url = await rig.serve("odd") if over_http else "http://odd.in-process"
    with pytest.raises(CallError) as caught:
        await rig.transport.send("POST", url + ROUTE, rig.credentials.headers(), b'{"do": "broken stream"}')
    assert (caught.value.kind, caught.value.delivery) == ("transport_peer_drop", "possibly_delivered")
    reply = await rig.transport.send("POST", url + ROUTE, rig.credentials.headers(), b'{"do": "broken at once"}')
    assert (reply.status, reply.json()["error"]["type"]) == (502, "transport_peer_drop")
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_shutdown_answers_what_it_cuts_short(rig: Rig, odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    from gym.runtime.listen import answering, open_socket, url_of

    listener = open_socket("127.0.0.1", 0, "odd")
    async with aiohttp.ClientSession(headers=rig.credentials.headers()) as session, answering(odd.app(), listener):
        url = url_of(listener)
        idle = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        hanging = asyncio.ensure_future(session.post(url + ROUTE, data=b'{"do": "hang"}'))
        await asyncio.sleep(0.1)
        started = asyncio.get_running_loop().time()
        # leaving the block shuts the web server down, with one idle connection and one call in flight
    assert asyncio.get_running_loop().time() - started < 4
    reply = await asyncio.wait_for(asyncio.shield(hanging), 1) if not hanging.cancelled() else None
    assert reply is not None
    assert reply.status == 503
    idle[1].close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_access_log_names_the_episode(rig: Rig, odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gym.access"):
        await rig.call("odd", "/ng-rollout/r1-a2/v1/responses", {"x": 1})
        await rig.call("odd", "/healthz")
    assert [record.getMessage().split(" ", 4)[:4] for record in caplog.records] == [
        ["odd", "POST", "/ng-rollout/r1-a2/v1/responses", "200"]
    ]
    assert caplog.records[0].getMessage().endswith("episode=r1-a2")


async def test_json_is_kept_as_it_is(rig: Rig, odd: Odd) -> None:
    value = {"text": "ünï\u2028", "big": 2**53, "float": 0.1, "none": None, "nested": [{"": []}]}
    reply = await rig.call("odd", ROUTE, value)
    assert orjson.loads(reply.body)["got"] == value
