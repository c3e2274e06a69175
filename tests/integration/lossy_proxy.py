"""A proxy for tests that delivers requests and loses replies: HTTP over TCP, one request a connection."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field


@dataclass
class LossyProxy:
    """Passes everything on, but for the paths in `lose` (how many replies to drop) and `twice` (deliver the request twice)."""

    target: str
    url: str = ""
    lose: dict[str, int] = field(default_factory=dict[str, int])
    twice: set[str] = field(default_factory=set[str])
    seen: list[str] = field(default_factory=list[str])

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, then it is closed."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            request = head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + await reader.readexactly(length)
            self.seen.append(path)
            gone = asyncio.ensure_future(reader.read())
            asking = asyncio.ensure_future(self._deliver(path, request))
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not asking.done():  # the client has left: so do we
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            elif self.lose.get(path, 0):
                self.lose[path] -= 1
                writer.transport.abort()
            else:
                writer.write(asking.result())
                await writer.drain()
        writer.close()

    async def _deliver(self, path: str, request: bytes) -> bytes:
        copies = 2 if path in self.twice else 1
        return (await asyncio.gather(*(self._ask(request) for _ in range(copies))))[-1]

    async def _ask(self, request: bytes) -> bytes:
        host, _, port = self.target.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def lossy_proxy(target: str) -> AsyncGenerator[LossyProxy]:
    """A proxy before the server at `target`."""
    proxy = LossyProxy(target)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield proxy
    finally:
        server.close()
