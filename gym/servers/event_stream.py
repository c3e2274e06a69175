"""A streamed answer on its way to the client, as server-sent events.

Its head goes out with the first event, so that what fails before can still be an answer of its own. One
that `end` was not called for is broken off, which its reader sees.
"""

from collections.abc import Iterable

from gym.models.sse import SSEEvent, encode
from gym.servers.http import Send

EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class EventStream:
    """Writes one answer, with status 200."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def begin(self) -> None:
        """Send the head, once."""
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})

    async def write(self, data: bytes) -> None:
        """Send bytes of events, if there are any."""
        await self.begin()
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def events(self, events: Iterable[SSEEvent]) -> None:
        """Send events, in one piece."""
        await self.write(b"".join(map(encode, events)))

    async def end(self) -> None:
        """Send the end."""
        await self.begin()
        await self._send({"type": "http.response.body", "body": b""})
