"""Calls between servers: when they are sent again, what they end as, and that both transports do the same."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gym.client import IDEMPOTENT, ONLY_UNSENT, CallError, Peer, ReplayPolicy, Reply, error_of
from gym.protocol import routes
from gym.runtime.listen import answering, open_socket, url_of
from gym.transports import HTTPTransport, InProcessTransport, Transport, read_cookies
from tests.unit.servers.conftest import refused

Send = Callable[[], Reply | CallError]


class Scripted:
    """A transport that answers from a list and notes when it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, dict[str, str], bytes]] = []
        self.times: list[float] = []

    async def send(self, method: str, url: str, headers: Any, body: bytes) -> Reply:
        self.sent.append((method, url, dict(headers), body))
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0)
        if answer == "hang":
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None: ...


def peer(transport: Transport) -> Peer:
    return Peer("box", "http://box/", transport, headers={"authorization": "Bearer t"})


OK = Reply(200, b'{"ok": 1}')
UNSENT = CallError("refused", kind="transport_unreachable", delivery="not_sent")
DROPPED = CallError("reset", kind="transport_peer_drop", delivery="possibly_delivered")
IDEMPOTENT_ROUTES = (
    routes.SEED_SESSION,
    routes.CLOSE_SESSION,
    routes.VERIFY,
    routes.AGENT_SESSIONS,
    routes.CLOSE_AGENT_SESSION,
    routes.AGGREGATE_METRICS,
)
OTHER_ROUTES = (routes.RESPONSES, routes.RUN, "/some_tool", routes.CHAT_COMPLETIONS)


@pytest.mark.parametrize("route", IDEMPOTENT_ROUTES)
@pytest.mark.parametrize("first", [UNSENT, DROPPED, Reply(503, b"busy"), Reply(429, b""), Reply(425, b"")])
async def test_what_is_idempotent_by_contract_is_sent_again(route: str, first: Any) -> None:
    transport = Scripted(first, OK)
    assert (await peer(transport).post(route, {"a": 1}, timeout=5)).json() == {"ok": 1}
    assert transport.sent[0] == transport.sent[1]


@pytest.mark.parametrize("route", IDEMPOTENT_ROUTES + OTHER_ROUTES)
@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 422, 500, 502, 504])
async def test_what_was_answered_is_not_asked_again(route: str, status: int) -> None:
    transport = Scripted(Reply(status, b"no"))
    error = await refused(peer(transport).post(route, {}, timeout=5))
    assert (error.status, error.delivery, error.terminal) == (status, "delivered", status < 500)
    assert len(transport.sent) == 1


@pytest.mark.parametrize("route", OTHER_ROUTES)
async def test_what_may_have_side_effects_is_sent_again_only_if_it_never_left(route: str) -> None:
    transport = Scripted(UNSENT, UNSENT, OK)
    assert (await peer(transport).post(route, {}, timeout=5)).status == 200
    for first in (DROPPED, Reply(503, b"busy"), Reply(429, b"")):
        transport = Scripted(first, OK)
        await refused(peer(transport).post(route, {}, timeout=5))
        assert len(transport.sent) == 1


async def test_repeats_are_bounded() -> None:
    transport = Scripted(*[DROPPED] * 10)
    error = await refused(peer(transport).post(routes.VERIFY, {}, timeout=30))
    assert (error.kind, len(transport.sent)) == ("transport_peer_drop", 5)


async def test_retry_after_is_honoured_and_the_deadline_is_over_all() -> None:
    transport = Scripted(Reply(503, b"busy", {"retry-after": "0.3"}), OK)
    await peer(transport).post(routes.VERIFY, {}, timeout=5)
    assert transport.times[1] - transport.times[0] >= 0.3
    transport = Scripted(Reply(503, b"busy", {"retry-after": "60"}), OK)
    error = await refused(peer(transport).post(routes.VERIFY, {}, timeout=0.1))
    assert (error.kind, len(transport.sent)) == ("transport_timeout", 1)


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-5", "nan", "inf", "1e9", ""])
def test_a_retry_after_that_makes_no_sense_makes_no_trouble(value: str) -> None:
    error = error_of("box", "POST", "http://box/x", Reply(503, b"", {"retry-after": value}))
    assert error.retry_after is None or 0 <= error.retry_after <= 600


async def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    transport = Scripted("hang")
    error = await refused(peer(transport).post(routes.VERIFY, {}, timeout=0.05))
    assert (error.kind, error.delivery, error.status, error.terminal) == ("transport_timeout", "possibly_delivered", None, False)
    assert "box gave no answer to POST /verify within 0.05 s" in str(error)


async def test_a_cancelled_caller_is_cancelled_and_not_timed_out() -> None:
    calling = asyncio.ensure_future(peer(Scripted("hang")).post(routes.VERIFY, {}, timeout=5))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


def test_a_delay_grows_is_jittered_and_capped() -> None:
    assert all(0.05 <= (IDEMPOTENT.delay(1, UNSENT) or 0) <= 0.1 for _ in range(50))
    policy = ReplayPolicy(attempts=100, idempotent=True)
    assert all(2.5 <= (policy.delay(50, UNSENT) or 0) <= 5.0 for _ in range(50))
    assert ONLY_UNSENT.delay(5, UNSENT) is None


@pytest.mark.parametrize(
    ("status", "body", "kind", "terminal"),
    [
        (409, b'{"error": {"message": "m", "type": "session_lost", "terminal": false}}', "session_lost", False),
        (401, b'{"error": {"message": "m", "type": "openai_model:credentials_refused"}}', "openai_model:credentials_refused", True),
        (500, b'{"error": {"message": "m", "type": "made_up"}}', "agent_request_failed", False),
        (422, b'{"detail": "fastapi"}', "protocol_violation", True),
        (410, b"gone", "protocol_violation", True),
        (404, b"<html>", "agent_request_failed", True),
        (500, b'{"error": "text"}', "agent_request_failed", False),
        (500, b'{"error": {"message": null, "type": null, "terminal": "yes"}}', "agent_request_failed", False),
        (502, b"\xff\xfe", "agent_request_failed", False),
        (500, b"[]", "agent_request_failed", False),
    ],
)
def test_an_error_keeps_what_its_peer_said(status: int, body: bytes, kind: str, terminal: bool) -> None:
    error = error_of("box", "POST", "http://box/x", Reply(status, body))
    assert (error.status, error.kind, error.terminal) == (status, kind, terminal)
    assert str(error).startswith(f"box answered {status} to POST /x")


def test_an_error_is_bounded_and_tells_no_secret() -> None:
    text = json.dumps({"error": {"message": "Authorization: Bearer abcdefghijklmnop, api_key=sk-1234567890abcdef " + "x" * 10_000}})
    error = error_of("box", "POST", "http://box/x", Reply(500, text.encode()))
    assert len(error.message) <= 2000
    assert "abcdefghij" not in str(error)
    assert "sk-123" not in str(error)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (["a=b; Path=/", "c=d=e"], {"a": "b", "c": "d=e"}),
        (['q="x\\054y"; HttpOnly'], {"q": "x,y"}),
        (["broken", "", ";", "a=1"], {"a": "1"}),
        (["a=; Max-Age=0"], {"a": ""}),
    ],
)
def test_cookies_are_read_as_they_come(headers: list[str], found: dict[str, str]) -> None:
    assert read_cookies(headers) == found


async def exchange(scope: Any, receive: Any, send: Any) -> None:
    """An application with one path for each thing that can come back."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    path = scope["path"]
    headers = [(b"X-Some-Header", b"Value"), (b"set-cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2")]
    if path == "/raises":
        raise RuntimeError("inside")
    if path == "/nothing":
        return
    status = int(path.removeprefix("/status/")) if path.startswith("/status/") else 200
    seen = {name.decode(): value.decode() for name, value in scope["headers"] if name.decode() in ("x-mine", "cookie", "content-type")}
    said = {"method": scope["method"], "path": path, "query": scope["query_string"].decode(), "seen": seen, "body": body.decode()}
    content = b"" if path == "/empty" else json.dumps(said).encode()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if path == "/unfinished":
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        return
    await send({"type": "http.response.body", "body": content[:5], "more_body": True})
    await send({"type": "http.response.body", "body": content[5:]})


@contextlib.asynccontextmanager
async def reachable(kind: str) -> AsyncIterator[tuple[Transport, str]]:
    """`exchange` behind one of the transports."""
    if kind == "in process":
        transport = InProcessTransport()
        transport.add("box", exchange)
        yield transport, "http://box"
        await transport.aclose()
        return
    http = HTTPTransport()
    listener = open_socket("127.0.0.1", 0, "box")
    async with answering(exchange, listener):
        yield http, url_of(listener)
        await http.aclose()


@pytest.mark.parametrize("kind", ["in process", "http"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/plain", b""),
        ("GET", "/plain?x=1&y=%20", b""),
        ("POST", "/plain", b'{"a": 1}'),
        ("POST", "/plain", b"x" * 300_000),
        ("POST", "/empty", b""),
        ("POST", "/status/302", b""),
        ("POST", "/status/404", b"{}"),
        ("POST", "/status/503", b"{}"),
    ],
)
async def test_both_transports_bring_the_same(kind: str, method: str, path: str, body: bytes) -> None:
    async with reachable(kind) as (transport, url):
        sent = {"x-mine": "1", "cookie": "k=v", "content-type": "application/json"}
        reply = await transport.send(method, url + path, sent, body)
        plain, _, query = path.partition("?")
        assert reply.status == (int(path[8:]) if path.startswith("/status/") else 200)
        assert reply.headers["x-some-header"] == "Value"
        assert reply.cookies == {"a": "1", "b": "2"}
        if path != "/empty":
            assert reply.json() == {"method": method, "path": plain, "query": query, "seen": sent, "body": body.decode()}
        else:
            assert reply.body == b""


@pytest.mark.parametrize("kind", ["in process", "http"])
async def test_both_transports_take_an_unfinished_answer_for_a_broken_connection(kind: str) -> None:
    async with reachable(kind) as (transport, url):
        error = await refused(transport.send("POST", url + "/unfinished", {}, b"{}"))
        assert (error.kind, error.delivery, error.status) == ("transport_peer_drop", "possibly_delivered", None)


async def test_in_process_an_exception_and_silence_are_broken_connections() -> None:
    async with reachable("in process") as (transport, url):
        for path in ("/raises", "/nothing"):
            assert (await refused(transport.send("POST", url + path, {}, b"{}"))).kind == "transport_peer_drop"


async def test_nobody_there_is_a_request_that_was_not_sent(http_transport: HTTPTransport) -> None:
    listener = open_socket("127.0.0.1", 0, "box")
    url = url_of(listener)
    listener.close()
    error = await refused(http_transport.send("POST", url + "/x", {}, b""))
    assert (error.kind, error.delivery) == ("transport_unreachable", "not_sent")


async def test_a_peer_that_hangs_up_may_have_got_it(http_transport: HTTPTransport) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    error = await refused(http_transport.send("POST", f"http://{host}:{port}/x", {}, b"{}"))
    assert (error.kind, error.delivery) == ("transport_peer_drop", "possibly_delivered")
    server.close()


@pytest.mark.parametrize("url", ["http://", "nonsense", "ftp://box/x", "http://[::1", "http://box:99999/x"])
async def test_an_address_that_is_none_is_a_call_error(http_transport: HTTPTransport, url: str) -> None:
    await refused(http_transport.send("POST", url, {}, b""))
