"""The two ways a request travels between servers: over HTTP, or straight into an ASGI application.

Both answer with the same `Reply` and fail with the same `CallError`. Neither keeps cookies:
sessions are passed explicitly. aiohttp is imported with the first HTTP call only, since a process
that only serves never needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gym.client import CallError, Reply, Transport
from gym.protocol.errors import redacted

if TYPE_CHECKING:
    import aiohttp

Message = MutableMapping[str, Any]
ASGIApp = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

CALLER_CANCELS = "gym.caller_cancels"
"""ASGI extension of requests whose caller, when it goes away, cancels the application's own task; nobody need watch for its leaving."""

_IDLE_SECONDS = 30.0
"""How long we keep an unused connection; shorter than our servers do, so that we are the ones to close it."""

_CONNECT_SECONDS = 10.0


class HTTPTransport:
    """Requests over HTTP/1.1 with kept-alive connections."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                auto_decompress=True,
                skip_auto_headers=("User-Agent",),
            )
        return self._session

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send one request and read its whole reply."""
        import aiohttp

        try:
            async with self._open().request(method, url, data=body or None, headers=headers, allow_redirects=False) as response:
                content = await response.read()
                return Reply(
                    response.status,
                    content,
                    {name.lower(): value for name, value in response.headers.items()},
                    read_cookies(response.headers.getall("Set-Cookie", [])),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise CallError(f"cannot reach {_host(url)}: {error}", kind="transport_unreachable", delivery="not_sent") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise _broke(_host(url), error) from error

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class InProcessTransport:
    """Requests straight into ASGI applications of this process, known by the host part of their URL.

    A request to any other host goes over HTTP. The application runs in the caller's own task, so a
    caller that is cancelled cancels the handler, as structured concurrency wants it. An answer that
    is not finished, and an exception, are to the caller what a broken connection is.
    """

    def __init__(self) -> None:
        self._apps: dict[str, ASGIApp] = {}
        self._http = HTTPTransport()

    def add(self, host: str, app: ASGIApp) -> None:
        """Answer requests to `http://<host>/…` with `app`."""
        self._apps[host] = app

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Hand one request to the application that its URL names."""
        host, slash, path = url[len("http://") :].partition("/") if url.startswith("http://") else ("", "", "")
        app = self._apps.get(host)
        if app is None:
            return await self._http.send(method, url, headers, body)
        path, _, query = (slash + path).partition("?")
        exchange = _Exchange(body)
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "extensions": {CALLER_CANCELS: {}},
            "client": ("in-process", 0),
            "server": (host, 0),
            "state": {},
        }
        try:
            await app(scope, exchange.receive, exchange.send)
        except Exception as error:
            raise _broke(host, error) from error
        if not exchange.complete:
            raise _broke(host, None)
        return exchange.reply()

    async def aclose(self) -> None:
        """Close the HTTP side; the applications belong to whoever made them."""
        await self._http.aclose()


class _Exchange:
    """The two channels of one ASGI request."""

    def __init__(self, body: bytes) -> None:
        self._request: bytes | None = body
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self.complete = False
        """Whether the answer was sent to its end."""

    async def receive(self) -> Message:
        if self._request is None:
            await asyncio.get_running_loop().create_future()  # the caller stays until it is cancelled
        body, self._request = self._request, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._chunks.append(message.get("body", b""))
            self.complete = not message.get("more_body", False)

    def reply(self) -> Reply:
        headers: dict[str, str] = {}
        cookies: list[str] = []
        for raw_name, raw_value in self._headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            if name == "set-cookie":
                cookies.append(value)
            else:
                headers[name] = value
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        return Reply(self._status, body, headers, read_cookies(cookies))


def read_cookies(headers: list[str]) -> dict[str, str]:
    """Name -> value of the given `Set-Cookie` headers; one that cannot be read is skipped."""
    found: dict[str, str] = {}
    for header in headers:
        name, separator, value = header.partition(";")[0].strip().partition("=")
        if separator and not value.startswith('"'):
            found[name] = value
            continue
        try:
            found.update({key: morsel.value for key, morsel in SimpleCookie(header).items()})
        except CookieError:
            continue
    return found


def _broke(host: str, error: Exception | None) -> CallError:
    reason = "its answer was not finished" if error is None else str(error) or type(error).__name__
    return CallError(redacted(f"the connection to {host} broke: {reason}"), kind="transport_peer_drop", delivery="possibly_delivered")


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url


__all__ = ["CALLER_CANCELS", "ASGIApp", "HTTPTransport", "InProcessTransport", "Message", "Transport", "read_cookies"]
