"""The two-way stream of a running command.

Invariant: bytes are kept as they are. Written on asyncio's streams because the engine takes the HTTP connection over
(`101 Upgraded`), which no public HTTP client interface covers.
"""

import asyncio
from dataclasses import dataclass

from gym.sandbox.output import BoundedOutput
from gym.sandbox.providers.docker.address import Address

_STDERR = 2
_PIECE = 64 * 1024
_MAX_REFUSAL = 64 * 1024


@dataclass
class Hijacked:
    """A connection that the engine has turned into the standard streams of a command."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read_into(self, stdout: BoundedOutput, stderr: BoundedOutput) -> None:
        """Read frames until the command's streams end; a connection that breaks off ends them too."""
        try:
            while True:
                header = await self.reader.readexactly(8)
                left = int.from_bytes(header[4:], "big")
                sink = stderr if header[0] == _STDERR else stdout
                while left:
                    piece = await self.reader.read(min(left, _PIECE))
                    if not piece:
                        return
                    sink.feed(piece)
                    left -= len(piece)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def write(self, data: bytes) -> None:
        """Send `data` to the command's stdin; a command that no longer listens is no error."""
        try:
            for start in range(0, len(data), _PIECE):
                self.writer.write(data[start : start + _PIECE])
                await self.writer.drain()
        except ConnectionError:
            return

    def close(self) -> None:
        """Let go of the connection. The command is not stopped by this."""
        self.writer.transport.abort()


async def open_hijacked(address: Address, target: str, body: bytes) -> tuple[int, Hijacked | None, bytes]:
    """Post `body` to `target` and take over the connection.

    Returns the HTTP status with the stream, or with the refusal's body where the status is an
    error. Raises OSError or EOFError if the engine cannot be talked to.
    """
    if address.socket_path is not None:
        reader, writer = await asyncio.open_unix_connection(address.socket_path)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        head = (
            f"POST {target} HTTP/1.1\r\nHost: {address.host}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        if status in (101, 200):
            return status, Hijacked(reader, writer), b""
        length = next((int(line.split(b":")[1]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        said = await reader.readexactly(min(length, _MAX_REFUSAL))
    except (ValueError, IndexError, asyncio.LimitOverrunError) as error:
        writer.transport.abort()
        raise ConnectionError("its answer is not HTTP") from error
    except BaseException:
        writer.transport.abort()
        raise
    writer.transport.abort()
    return status, None, said
