"""The way out for a streamed reply: read as it passes, recorded before its last event is let go, and kept alive while it is silent.

Invariants: bytes go on as they came, in their order, and never wait for others; a keep-alive stands only between whole events.
Where nothing was sent for a while, the headers go out before the model has said anything. From then on the status is 200, and an
error can only be an event.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable

from gym.models.calls import Dialect
from gym.models.capture.facts import finish_reason
from gym.models.capture.recorder import Recording
from gym.models.dialects.assemble import assembler
from gym.models.sse import KEEP_ALIVE, SSEEvent, SSEParser, encode
from gym.servers.event_stream import EVENT_STREAM
from gym.servers.http import Answer, Send, respond
from gym.transports import Message

_BOUNDARIES = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Outlet:
    """One reply to a request that asks for a stream."""

    def __init__(self, send: Send, dialect: Dialect, recording: Recording | None) -> None:
        self.begun = False
        """Whether the handler has begun its stream."""
        self.status = 200
        self._dialect: Dialect = dialect
        self._send, self._recording = send, recording
        self._parser, self._assembler = SSEParser(), assembler(dialect)
        self._started = False
        """The headers are out."""
        self._tail = b"\n\n"
        self._passing = asyncio.Lock()
        self._quiet_since = asyncio.get_running_loop().time()
        if recording is not None:
            recording.partial = self._assembler.result

    async def send(self, message: Message) -> None:
        """Pass on what the handler sends."""
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            async with self._passing:
                if self._started:
                    return
                self._started = True
                await self._send(message)
            return
        body: bytes = message.get("body", b"")
        if self._recording is not None and not self._recording.ended:
            self._read(self._recording, body, last=not message.get("more_body", False))
        async with self._passing:
            self._tail = (self._tail + body)[-4:]
            await self._send(message)
        self._quiet_since = asyncio.get_running_loop().time()

    async def answer(self, answer: Answer, events: Iterable[SSEEvent]) -> int:
        """Send a reply that is no stream; `events` in its place, where the headers are out."""
        async with self._passing:
            if not self._started:
                self._started = True
                await respond(self._send, answer)
                return answer.status
            body = b"".join(map(encode, events))
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
            return 200

    @contextlib.asynccontextmanager
    async def kept_alive(self, seconds: float | None) -> AsyncGenerator[None]:
        """Send a comment whenever nothing was sent for so long; None: never."""
        if not seconds:
            yield
            return
        beating = asyncio.ensure_future(self._beat(seconds))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait((beating,))

    async def _beat(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        wait = seconds
        while True:
            await asyncio.sleep(wait)
            wait = seconds - (loop.time() - self._quiet_since)
            if wait > 0:
                continue
            wait = seconds
            async with self._passing:
                if not self._started:
                    self._started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
                if self._tail.endswith(_BOUNDARIES):
                    await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    def _read(self, recording: Recording, body: bytes, *, last: bool) -> None:
        """Look at what passes; the record is written before what ends the reply does."""
        reading = self._assembler
        if body:
            recording.first_token()
            for event in self._parser.feed(body):
                reading.add(event)
        if not (reading.finished or last):
            return
        response = reading.result()
        if reading.error is not None:
            message = str(reading.error.get("message") or reading.error)
            recording.end(self.status, response, category="upstream_error", error=message)
        elif reading.finished or (response is not None and finish_reason(self._dialect, response) is not None):
            recording.end(self.status, response)
        else:
            error = "the stream ended before the reply did"
            recording.end(self.status, response, complete=False, category="stream_truncated", error=error)
