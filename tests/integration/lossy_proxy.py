"""A proxy for tests before a server, which does to requests and replies what a test names: HTTP over TCP, one request a connection."""

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.integration.apart import served_apart

What = Literal["lose_reply", "lose_request", "twice", "hold", "answer"]


@dataclass
class Rule:
    """What becomes of the next `times` requests whose whole path matches, once `skip` of them have passed.

    `lose_reply` breaks the connection in place of the reply, `lose_request` in place of the request; `twice` delivers the request
    twice; `hold` keeps it until `go` is set; `answer` answers `reply` in the server's place.
    """

    path: str
    what: What
    times: int = 1
    skip: int = 0
    reply: bytes = b""
    met: int = 0
    """How many requests it was applied to."""
    go: threading.Event = field(default_factory=threading.Event)

    def applies(self, path: str) -> bool:
        """Whether this request is one of those; each is asked about once."""
        if self.met >= self.times or not re.fullmatch(self.path, path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.met += 1
        return True


def answer(status: int, body: bytes = b"{}", **headers: str) -> bytes:
    """A whole reply, for a rule."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""]).encode() + body


@dataclass
class LossyProxy:
    """Passes everything on to the address that `target` gives, but for what its rules say; the first that applies counts."""

    target: Callable[[], str]
    url: str = ""
    rules: list[Rule] = field(default_factory=list[Rule])
    seen: list[str] = field(default_factory=list[str])

    def rule(self, path: str, what: What, times: int = 1, *, skip: int = 0, reply: bytes = b"") -> Rule:
        """Add a rule."""
        made = Rule(path, what, times, skip, reply)
        self.rules.append(made)
        return made

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, then it is closed."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            request = head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + await reader.readexactly(length)
            self.seen.append(path)
            rule = next((rule for rule in self.rules if rule.applies(path)), None)
            gone = asyncio.ensure_future(reader.read())
            asking = asyncio.ensure_future(self._reply(request, rule))
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not asking.done():  # the client has left: so do we
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            elif rule is not None and rule.what in ("lose_reply", "lose_request"):
                writer.transport.abort()
            else:
                writer.write(asking.result())
                await writer.drain()
        writer.close()

    async def _reply(self, request: bytes, rule: Rule | None) -> bytes:
        what = rule.what if rule is not None else None
        while rule is not None and what == "hold" and not rule.go.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.02)
        if rule is not None and what in ("answer", "lose_request"):
            return rule.reply
        return (await asyncio.gather(*(self._ask(request) for _ in range(2 if what == "twice" else 1))))[-1]

    async def _ask(self, request: bytes) -> bytes:
        host, _, port = self.target().removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def lossy_proxy(target: Callable[[], str]) -> AsyncGenerator[LossyProxy]:
    """A proxy before the server at the address that `target` gives; it is asked for with each request."""
    proxy = LossyProxy(target)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield proxy
    finally:
        server.close()


@contextlib.contextmanager
def proxies_apart(targets: Mapping[str, Callable[[], str]]) -> Iterator[dict[str, LossyProxy]]:
    """Several proxies in a thread of their own, for tests whose servers are other processes."""
    proxies: dict[str, LossyProxy] = {}

    async def serve(stop: asyncio.Event, up: threading.Event) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for name, target in targets.items():
                proxies[name] = await stack.enter_async_context(lossy_proxy(target))
            up.set()
            await stop.wait()
        handled = asyncio.all_tasks() - {asyncio.current_task()}
        for task in handled:
            task.cancel()
        await asyncio.gather(*handled, return_exceptions=True)

    with served_apart(serve):
        yield proxies
