"""The two-way stream of a running command.

Invariants: bytes are kept as they are, and a command that floods us takes the event loop for one small
buffer at a time. Written on asyncio's transports because the engine takes the HTTP connection over
(`101 Upgraded`), which no public HTTP client interface covers.
"""

import asyncio
from typing import cast

from gym.sandbox.output import BoundedOutput
from gym.sandbox.providers.docker.address import Address

_STDERR = 2
_HEADER = 8
_PIECE = 64 * 1024
_MAX_HEAD = 64 * 1024
_MAX_REFUSAL = 64 * 1024


class Hijacked(asyncio.BufferedProtocol):
    """A connection that the engine turns into the standard streams of a command; its output goes to `stdout` and `stderr`."""

    def __init__(self, stdout: BoundedOutput, stderr: BoundedOutput) -> None:
        loop = asyncio.get_running_loop()
        self._stdout, self._stderr = stdout, stderr
        self._buffer = bytearray(_PIECE)
        self._transport: asyncio.Transport | None = None
        self._answer: bytearray | None = bytearray()
        """What came of the HTTP answer; None once the streams have begun."""
        self._answered: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._header = bytearray()
        self._left = 0
        self._sink = stdout
        self._writable = asyncio.Event()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done once the command's streams have ended; a connection that breaks off ends them too."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._writable.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = memoryview(self._buffer)[:nbytes]
        if self._answer is None:
            self._frames(data)
        else:
            self._head(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("it hung up without an answer"))
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _head(self, data: memoryview) -> None:
        """Take the HTTP answer, which the streams follow without a gap."""
        assert self._answer is not None
        self._answer += data
        head, found, rest = self._answer.partition(b"\r\n\r\n")
        if not found:
            if len(self._answer) > _MAX_HEAD:
                self._break("its answer is not HTTP")
            return
        try:
            status = int(head.split(b" ", 2)[1])
            lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        except (ValueError, IndexError):
            self._break("its answer is not HTTP")
            return
        if status in (101, 200):
            self._answer = None
            if not self._answered.done():
                self._answered.set_result((status, b""))
            self._frames(memoryview(rest))
        elif len(rest) >= (wanted := min(lengths[0] if lengths else 0, _MAX_REFUSAL)) and not self._answered.done():
            self._answered.set_result((status, bytes(rest[:wanted])))

    def _frames(self, data: memoryview) -> None:
        """Give every frame's content to its sink: eight bytes say which stream, and how much."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                self._sink.feed(piece)
                self._left -= len(piece)
                at += len(piece)
            else:
                part = data[at : at + _HEADER - len(self._header)]
                self._header += part
                at += len(part)
                if len(self._header) == _HEADER:
                    self._sink = self._stderr if self._header[0] == _STDERR else self._stdout
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._header.clear()
        if any(sink.wants_rest(self._go_on) for sink in (self._stdout, self._stderr)) and self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _break(self, why: str) -> None:
        if not self._answered.done():
            self._answered.set_exception(ConnectionError(why))
        self.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send the request: the status of the answer, and what it says where that is an error. Raises OSError."""
        assert self._transport is not None
        self._transport.write(request)
        return await self._answered

    async def write(self, data: bytes) -> None:
        """Send `data` to the command's stdin; a command that no longer listens is no error."""
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            await self._writable.wait()
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.write(view[start : start + _PIECE])

    def close(self) -> None:
        """Let go of the connection. The command is not stopped by this."""
        if self._transport is not None:
            self._transport.abort()


async def open_hijacked(
    address: Address, target: str, body: bytes, stdout: BoundedOutput, stderr: BoundedOutput
) -> tuple[int, Hijacked | None, bytes]:
    """Post `body` to `target` and take over the connection.

    Returns the HTTP status with the stream, or with the refusal's body where the status is an
    error. Raises OSError if the engine cannot be talked to.
    """
    loop = asyncio.get_running_loop()
    if address.socket_path is not None:
        _, stream = await loop.create_unix_connection(lambda: Hijacked(stdout, stderr), address.socket_path)
    else:
        _, stream = await loop.create_connection(lambda: Hijacked(stdout, stderr), address.host, address.port, ssl=address.tls)
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {address.host}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        status, said = await stream.ask(head.encode() + body)
    except BaseException:
        stream.close()
        raise
    if status in (101, 200):
        return status, stream, b""
    stream.close()
    return status, None, said
