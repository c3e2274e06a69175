"""Server-sent events: bytes as they arrive, cut anywhere, to events, and events to bytes.

Follows the HTML standard's event streams: line ends of all three kinds, comments (which is what
keep-alives are), a leading byte order mark, several `data` lines. Only whole lines are decoded, so
a character may be split between chunks. An event counts once its blank line is here: what a broken
stream left unfinished is never delivered. `id` and `retry` are left out, since no dialect uses them.
"""

import re
from typing import NamedTuple

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: it keeps proxies from cutting a silent stream, and no parser makes an event of it."""

_LINE_END = re.compile("\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"


class SSEEvent(NamedTuple):
    """One event; `event` is None where the stream named none."""

    event: str | None
    data: str


class SSEParser:
    """Reads one stream."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The pieces of the line that has not ended."""
        self._event: str | None = None
        self._data: list[str] = []
        self._after_return = False
        """The last byte was a carriage return, so that a line feed now belongs to it."""
        self._started = False

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """The events that `chunk` completes."""
        if not chunk:
            return []
        if self._after_return and chunk[0] == 10:
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._line.append(first)
        if not others:
            return []
        lines = [b"".join(self._line), *others]
        self._line = [lines.pop()]
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_MARK)
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> SSEEvent | None:
        """Read one line; the blank one ends an event."""
        if not line:
            data, name = self._data, self._event
            self._data, self._event = [], None
            return SSEEvent(name, data[0] if len(data) == 1 else "\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(_text(value))
        elif field == b"event":
            self._event = _text(value) or None
        return None


def _text(value: bytes) -> str:
    return (value[1:] if value[:1] == b" " else value).decode(errors="replace")


def encode(event: SSEEvent) -> bytes:
    """The bytes of one event."""
    data = event.data
    if "\n" in data or "\r" in data:
        data = "\ndata: ".join(_LINE_END.split(data))
    return (f"event: {event.event}\ndata: {data}\n\n" if event.event else f"data: {data}\n\n").encode()
