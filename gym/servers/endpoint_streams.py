"""What becomes of an endpoint's stream of Chat Completions for a client of any dialect: the events, or bytes, that are sent on."""

import re
from collections.abc import AsyncIterator
from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.dialects.errors import error_events
from gym.models.dialects.streams import ChatToMessages, ChatToResponses
from gym.models.sse import SSEEvent

_END = SSEEvent(None, "[DONE]")
_EVENT = re.compile(rb"(\r?\n\r?\n)")
"""What ends an event; text and ends alternate in what it splits."""
_USAGE = re.compile(rb'"choices": ?\[\].*"usage": ?\{|"usage": ?\{.*"choices": ?\[\]')
"""A usage event; within a string the quotes would be escaped."""


class ChatToChat:
    """Chunks for a client of the same dialect: as they came, but for usage that it did not ask for."""

    def __init__(self, usage: bool) -> None:
        self._usage = usage

    def add(self, chunk: dict[str, Any]) -> list[SSEEvent]:
        """The chunk as an event."""
        if not self._usage and not chunk.get("choices"):
            return []
        return [SSEEvent(None, orjson.dumps(chunk).decode())]

    def finish(self) -> list[SSEEvent]:
        """The end of every stream of this dialect."""
        return [_END]

    def fail(self, message: str, code: str) -> list[SSEEvent]:
        """An error, as endpoints send it within a stream."""
        return error_events("chat_completions", 502, message, code)


def events_of(dialect: Dialect, body: dict[str, Any], *, usage: bool) -> ChatToResponses | ChatToMessages | ChatToChat:
    if dialect == "responses":
        return ChatToResponses(body)
    return ChatToMessages(body) if dialect == "messages" else ChatToChat(usage)


async def without_usage(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The bytes of a stream of Chat Completions without its usage event: the one that has usage and no choice."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = _EVENT.split(rest + chunk)
        kept = b"".join(text + end for text, end in zip(whole[::2], whole[1::2], strict=True) if not _USAGE.search(text))
        if kept:
            yield kept
    if rest:
        yield rest
