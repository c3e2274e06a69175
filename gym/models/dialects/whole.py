"""A whole reply as the events of a stream, for servers that have it at once and are asked to stream it.

Assembled again, the events give the same reply. Text can be cut into pieces, as tokens would be.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.dialects.arguments import NOT_AN_OBJECT, arguments_of
from gym.models.dialects.fields import Fields, fields_of, list_of
from gym.models.dialects.items import Item
from gym.models.dialects.response_events import ResponseEvents, is_text_part, text_in
from gym.models.sse import SSEEvent


def wants_usage(request: Fields) -> bool:
    """Whether a Chat Completions request asks for usage in its stream."""
    return bool(fields_of(request.get("stream_options")).get("include_usage"))


def stream_of(dialect: Dialect, reply: Fields, *, piece: int | None = None, include_usage: bool = True) -> Iterator[SSEEvent]:
    """The events of `reply`, its text in pieces of `piece` characters; clients of Chat Completions ask for the usage."""
    if dialect == "chat_completions":
        return _chat(reply, piece, include_usage)
    return _responses(reply, piece) if dialect == "responses" else _messages(reply, piece)


def _pieces(text: str, size: int | None) -> Iterator[str]:
    step = size or len(text) or 1
    return (text[begin : begin + step] for begin in range(0, len(text), step))


_STREAMED_TEXT = ("reasoning_content", "reasoning", "content", "refusal")


def _chat(reply: Fields, piece: int | None, include_usage: bool) -> Iterator[SSEEvent]:
    head = {name: value for name, value in reply.items() if name not in ("choices", "usage", "object")}
    base = {**{name: head[name] for name in ("id", "created", "model") if name in head}, "object": "chat.completion.chunk"}
    usage = {"usage": None} if include_usage and "usage" in reply else {}

    def event(fields: Fields, *choices: Fields) -> SSEEvent:
        return SSEEvent(None, orjson.dumps({**base, **usage, "choices": choices, **fields}).decode())

    first = {**head, "object": "chat.completion.chunk"}
    for choice in map(fields_of, list_of(reply.get("choices"))):
        message, index = fields_of(choice.get("message")), choice.get("index", 0)
        started = {name: "" if name in _STREAMED_TEXT and isinstance(value, str) else value for name, value in message.items()}
        calls = list_of(started.pop("tool_calls", None))
        yield event(first, {"index": index, "delta": started | ({"tool_calls": []} if message.get("tool_calls") == [] else {})})
        first = {}
        for name in _STREAMED_TEXT:
            for text in _pieces(message.get(name) or "", piece):
                yield event({}, {"index": index, "delta": {name: text}})
        for number, call in enumerate(map(fields_of, calls)):
            function = fields_of(call.get("function"))
            begun = {**call, "index": number, "function": {**function, "arguments": ""}}
            yield event({}, {"index": index, "delta": {"tool_calls": [begun]}})
            for text in _pieces(function.get("arguments") or "", piece):
                yield event({}, {"index": index, "delta": {"tool_calls": [{"index": number, "function": {"arguments": text}}]}})
        yield event({}, {**{name: value for name, value in choice.items() if name != "message"}, "index": index, "delta": {}})
    if include_usage and reply.get("usage") is not None:
        yield event({"usage": reply["usage"]})
    yield SSEEvent(None, "[DONE]")


def _responses(reply: Fields, piece: int | None) -> Iterator[SSEEvent]:
    events = ResponseEvents()
    yield from events.begun({**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None, "error": None})
    for index, item in enumerate(map(fields_of, list_of(reply.get("output")))):
        blank: Item = {"content": [], "summary": [], "status": "in_progress", "arguments": ""}
        yield events.added(index, {**item, **{name: value for name, value in blank.items() if item.get(name) is not None}})
        item_id = str(item.get("id") or "")
        for place, part in enumerate(map(fields_of, list_of(item.get("summary")))):
            yield from _summary(events, index, item_id, place, part, piece)
        for place, part in enumerate(map(fields_of, list_of(item.get("content")))):
            yield events.part_added(index, item_id, place, part)
            if is_text_part(part):
                for text in _pieces(text_in(part), piece):
                    yield events.text(index, item_id, place, part["type"], text)
            yield from events.part_done(index, item_id, place, part)
        if item.get("type") == "function_call":
            for text in _pieces(item.get("arguments") or "", piece):
                yield events.arguments(index, item_id, text)
            yield from events.call_done(index, item)
        else:
            yield events.done(index, item)
    yield events.ended({"status": "completed", **reply})


def _summary(events: ResponseEvents, index: int, item_id: str, place: int, part: Item, piece: int | None) -> Iterator[SSEEvent]:
    fields: Fields = {"output_index": index, "item_id": item_id, "summary_index": place}
    text = str(part.get("text") or "")
    yield events.event("response.reasoning_summary_part.added", {**fields, "part": {**part, "text": ""}})
    for delta in _pieces(text, piece):
        yield events.event("response.reasoning_summary_text.delta", {**fields, "delta": delta})
    yield events.event("response.reasoning_summary_text.done", {**fields, "text": text})
    yield events.event("response.reasoning_summary_part.done", {**fields, "part": part})


_BLOCK_TEXT = ("text", "thinking")


def _messages(reply: Fields, piece: int | None) -> Iterator[SSEEvent]:
    def event(kind: str, **fields: Any) -> SSEEvent:
        return SSEEvent(kind, orjson.dumps({"type": kind, **fields}).decode())

    usage, ending = fields_of(reply.get("usage")), ("stop_reason", "stop_sequence", "stop_details")
    begun: Fields = {"content": [], "usage": {**usage, "output_tokens": 0}, **{name: None for name in ending if name in reply}}
    yield event("message_start", message={**reply, **begun})
    for index, block in enumerate(map(fields_of, list_of(reply.get("content")))):
        kind = block.get("type")
        blank: Fields = {kind: ""} if kind in _BLOCK_TEXT else {"input": {}} if kind == "tool_use" else {}
        yield event("content_block_start", index=index, content_block={**block, **blank})
        if kind in _BLOCK_TEXT:
            for text in _pieces(block.get(kind) or "", piece):
                yield event("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})
        elif kind == "tool_use":
            given = fields_of(block.get("input"))
            written = orjson.dumps(given).decode() if NOT_AN_OBJECT in given else arguments_of(given)
            for text in _pieces(written if given else "", piece):
                yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": text})
        yield event("content_block_stop", index=index)
    yield event("message_delta", delta={name: reply[name] for name in ending if name in reply}, usage={"output_tokens": 0, **usage})
    yield event("message_stop")
