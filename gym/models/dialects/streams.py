"""Chat Completions chunks, as they come, as the events of the other dialects.

Each converter is fed chunk by chunk and answers with the events that each makes possible: text goes
on at once. What is kept is what the end of the stream has to repeat, and what the dialect cannot
take yet. Fed with the chunks of a completion, a converter ends in what `from_chat` makes of it. `finish` is
for a stream that came to its end, `fail` for one that broke; after either, nothing follows.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson

from gym.models.dialects.arguments import NOT_AN_OBJECT, input_of
from gym.models.dialects.chunks import ChunkReader, GrowingCall
from gym.models.dialects.errors import error_events
from gym.models.dialects.fields import fields_of, list_of
from gym.models.dialects.from_chat import begun_message, messages_usage, reasoning_of, stop_of, tool_use_block
from gym.models.dialects.items import (
    Body,
    Item,
    base_id,
    begun_response,
    call_item,
    ended_response,
    item_status,
    message_item,
    reasoning_item,
    refusal_part,
    text_logprobs,
    text_part,
    wants_logprobs,
)
from gym.models.dialects.response_events import ResponseEvents
from gym.models.dialects.whole import stream_of
from gym.models.sse import SSEEvent

_ITEM_OF = {"reasoning_text": "reasoning", "output_text": "message", "refusal": "message"}


@dataclass(slots=True)
class _Item:
    """A reasoning or message item as it grows; `pieces` and `logprobs` are of its last part."""

    place: int
    item_id: str
    kind: str
    part: str
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[Item] = field(default_factory=list[Item])
    parts: list[Item] = field(default_factory=list[Item])
    """Those that are whole."""

    def end_part(self) -> Item:
        """The last part, which is whole now."""
        part = _part(self.part, "".join(self.pieces), self.logprobs)
        self.pieces, self.logprobs = [], []
        self.parts.append(part)
        return part

    def whole(self, status: str = "completed") -> Item:
        """The item."""
        if self.kind == "reasoning":
            return reasoning_item(self.item_id, self.parts[0]["text"], status)
        return message_item(self.item_id, self.parts, status)


def _part(kind: str, text: str, logprobs: list[Item] | None = None) -> Item:
    if kind == "output_text":
        return text_part(text, logprobs)
    return refusal_part(text) if kind == "refusal" else {"type": kind, "text": text}


class ChatToResponses:
    """To the events of a Responses stream. `request` is the Responses request.

    A tool call's item stays open until the end, since endpoints may write several at a time.
    """

    def __init__(self, request: Body) -> None:
        self._request = request
        self._logprobs = wants_logprobs(request)
        self._reader = ChunkReader()
        self._events = ResponseEvents()
        self._begun: Body | None = None
        self._output: list[Item | None] = []
        """The items in order; None for one that is open."""
        self._open: _Item | None = None

    def add(self, chunk: Body) -> list[SSEEvent]:
        """The events of the next chunk."""
        reader = self._reader
        if reader.ended:
            return []
        events = self._begin(chunk) if self._begun is None else []
        if chunk.get("error"):
            error = fields_of(chunk["error"])
            return events + self.fail(str(error.get("message") or chunk["error"]), error.get("code"))
        choice = reader.choice_of(chunk)
        delta = fields_of(choice.get("delta"))
        if thought := reasoning_of(delta):
            events += self._add_text("reasoning_text", thought)
        if isinstance(text := delta.get("content"), str) and text:
            events += self._add_text("output_text", text, text_logprobs(choice.get("logprobs")) if self._logprobs else None)
        if refusal := delta.get("refusal"):
            events += self._add_text("refusal", refusal)
        for call in list_of(delta.get("tool_calls")):
            events += self._add_call(fields_of(call))
        return events

    def finish(self) -> list[SSEEvent]:
        """The events of the end: whatever is open is done, and the reply is whole."""
        reader = self._reader
        if reader.ended:
            return []
        events = self._begin({}) if self._begun is None else []
        begun = self._begun or {}
        reader.ended = True
        reader.name_calls()
        for call in reader.calls.values():
            if call.place is None:
                events += self._begin_call(call)
        if not self._output:
            events += self._begin_item("output_text")
        status = item_status(reader.finish_reason)
        last = len(self._output) - 1
        events += self._end_item(status if self._open is not None and self._open.place == last else "completed")
        for call in reader.calls.values():
            item = self._item_of(call, status if call.place == last else "completed")
            self._output[call.place or 0] = item
            events += self._events.call_done(call.place or 0, item)
        output = [item for item in self._output if item is not None]
        if output[-1]["status"] != status:  # the last item had ended before anybody knew how the reply would
            output[-1] = {**output[-1], "status": status}
        response = ended_response(begun, output, reader.finish_reason, reader.usage)
        return [*events, self._events.ended(response)]

    def fail(self, message: str, code: str | None = None) -> list[SSEEvent]:
        """The events of a stream that broke; the reply holds what there is of it."""
        reader = self._reader
        if reader.ended:
            return []
        events = self._begin({}) if self._begun is None else []
        reader.ended = True
        reported = error_events("responses", 500, message, code, sequence_number=self._events.next_number)
        self._events.next_number += len(reported)
        if self._open is not None:
            self._open.end_part()
            self._output[self._open.place] = self._open.whole("incomplete")
        for call in reader.calls.values():
            if call.place is not None:
                self._output[call.place] = self._item_of(call, "incomplete")
        output = [item for item in self._output if item is not None]
        failed = {"status": "failed", "error": {"code": code or "server_error", "message": message}, "output": output}
        return [*events, *reported, self._events.ended({**(self._begun or {}), **failed})]

    def _begin(self, chunk: Body) -> list[SSEEvent]:
        self._reader.base = base_id(chunk)
        self._begun = begun_response(self._reader.base, chunk, self._request)
        return self._events.begun(self._begun)

    def _add_text(self, part: str, text: str, logprobs: list[Item] | None = None) -> list[SSEEvent]:
        item = self._open
        events: list[SSEEvent] = []
        if item is None or item.part != part:
            events = self._begin_item(part)
            item = self._open
            assert item is not None
        item.pieces.append(text)
        if logprobs:
            item.logprobs += logprobs
        events.append(self._events.text(item.place, item.item_id, len(item.parts), part, text, logprobs))
        return events

    def _begin_item(self, part: str) -> list[SSEEvent]:
        """Open a part, in the item that is open if it belongs there, else in a new one."""
        item, kind = self._open, _ITEM_OF[part]
        if item is not None and item.kind == kind:
            events = self._events.part_done(item.place, item.item_id, len(item.parts), item.end_part())
            item.part = part
        else:
            events = self._end_item("completed")
            place = len(self._output)
            self._output.append(None)
            item = self._open = _Item(place, f"{'rs' if kind == 'reasoning' else 'msg'}_{self._reader.base}_{place}", kind, part)
            hollow = reasoning_item(item.item_id, "") if kind == "reasoning" else message_item(item.item_id, [])
            blank: Item = {"content": [], "status": "in_progress"}
            events.append(self._events.added(place, {**hollow, **blank}))
        return [*events, self._events.part_added(item.place, item.item_id, len(item.parts), _part(part, ""))]

    def _end_item(self, status: str) -> list[SSEEvent]:
        """Close the reasoning or message item that is open."""
        item, self._open = self._open, None
        if item is None:
            return []
        events = self._events.part_done(item.place, item.item_id, len(item.parts), item.end_part())
        whole = self._output[item.place] = item.whole(status)
        return [*events, self._events.done(item.place, whole)]

    def _add_call(self, delta: Body) -> list[SSEEvent]:
        call, added = self._reader.call_of(delta)
        if call.place is None:
            return self._begin_call(call) if call.call_id and call.name else []
        return [self._events.arguments(call.place, self._id_of(call), added)] if added else []

    def _begin_call(self, call: GrowingCall) -> list[SSEEvent]:
        events = self._end_item("completed")
        call.place = len(self._output)
        self._output.append(None)
        hollow = call_item(self._id_of(call), call.call_id, call.name, "", "in_progress")
        events.append(self._events.added(call.place, hollow))
        if call.pieces:
            events.append(self._events.arguments(call.place, hollow["id"], "".join(call.pieces)))
        return events

    def _id_of(self, call: GrowingCall) -> str:
        return f"fc_{self._reader.base}_{call.place}"

    def _item_of(self, call: GrowingCall, status: str) -> Item:
        return call_item(self._id_of(call), call.call_id, call.name, "".join(call.pieces), status)


class ChatToMessages:
    """To the events of a Messages stream. `request` is the Messages request.

    Blocks follow one another here, so that what comes beside an open tool call waits for its end. A
    call's arguments are sent when they are whole, since clients fail on what turns out to be no JSON; the
    tools that ask for `eager_input_streaming` get them as they come.
    """

    def __init__(self, request: Body) -> None:
        self._request = request
        self._eager = {tool.get("name") for tool in map(fields_of, list_of(request.get("tools"))) if tool.get("eager_input_streaming")}
        self._reader = ChunkReader()
        self._begun = False
        self._next = 0
        self._open: str | None = None
        """The type of the block that is open."""
        self._late: dict[str, list[str]] = {}
        """Text beside an open call, by block type."""
        self._refused = False

    def add(self, chunk: Body) -> list[SSEEvent]:
        """The events of the next chunk."""
        reader = self._reader
        if reader.ended:
            return []
        events = self._begin(chunk) if not self._begun else []
        if chunk.get("error"):
            error = fields_of(chunk["error"])
            return events + self.fail(str(error.get("message") or chunk["error"]), error.get("code"))
        delta = fields_of(reader.choice_of(chunk).get("delta"))
        if thought := reasoning_of(delta):
            events += self._add_text("thinking", thought)
        if isinstance(text := delta.get("content"), str) and text:
            events += self._add_text("text", text)
        if refusal := delta.get("refusal"):
            self._refused = True
            events += self._add_text("text", refusal)
        for call in list_of(delta.get("tool_calls")):
            events += self._add_call(fields_of(call))
        return events

    def finish(self) -> list[SSEEvent]:
        """The events of the end: what waited, and why the model stopped."""
        reader = self._reader
        if reader.ended:
            return []
        events = self._begin({}) if not self._begun else []
        reader.ended = True
        reader.name_calls()
        for call in reader.calls.values():
            events += self._end_call(call)
        for kind, pieces in self._late.items():
            events += [*self._begin_block({"type": kind, kind: ""} | _signature(kind)), self._delta(kind, "".join(pieces))]
        events += self._end_block()
        reason, sequence = stop_of(reader.finish_reason, reader.stopped_at, called=bool(reader.calls), refused=self._refused)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        events.append(_event("message_delta", delta=delta, usage=messages_usage(reader.usage)))
        return [*events, _event("message_stop")]

    def fail(self, message: str, code: str | None = None) -> list[SSEEvent]:
        """The event of a stream that broke."""
        if self._reader.ended:
            return []
        self._reader.ended = True
        return error_events("messages", 500, message, code)

    def _begin(self, chunk: Body) -> list[SSEEvent]:
        self._begun = True
        self._reader.base = base_id(chunk)
        return [_event("message_start", message=begun_message(self._reader.base, chunk, self._request))]

    def _add_text(self, kind: str, text: str) -> list[SSEEvent]:
        if self._open == kind:
            return [self._delta(kind, text)]
        if self._open == "tool_use":
            self._late.setdefault(kind, []).append(text)
            return []
        return [*self._begin_block({"type": kind, kind: ""} | _signature(kind)), self._delta(kind, text)]

    def _add_call(self, delta: Body) -> list[SSEEvent]:
        call, added = self._reader.call_of(delta)
        eager = call.name in self._eager
        if call.place is None:
            if self._open == "tool_use" or not (call.call_id and call.name):
                return []
            added = "".join(call.pieces)
            events = self._begin_call(call)
            return [*events, self._arguments(call, added)] if eager and added else events
        return [self._arguments(call, added)] if eager and added else []

    def _begin_call(self, call: GrowingCall) -> list[SSEEvent]:
        events = self._begin_block(tool_use_block(call.call_id, call.name, {}))
        call.place = self._next - 1
        return events

    def _end_call(self, call: GrowingCall) -> list[SSEEvent]:
        """The rest of a call's block."""
        sent = call.place is not None and call.name in self._eager
        events = self._begin_call(call) if call.place is None else []
        arguments = "".join(call.pieces)
        if arguments.strip() and not sent:
            given = input_of(arguments)
            events.append(self._arguments(call, orjson.dumps(given).decode() if NOT_AN_OBJECT in given else arguments))
        return [*events, *self._end_block()]

    def _begin_block(self, block: Body) -> list[SSEEvent]:
        events = self._end_block()
        self._open = block["type"]
        self._next += 1
        return [*events, _event("content_block_start", index=self._next - 1, content_block=block)]

    def _end_block(self) -> list[SSEEvent]:
        if self._open is None:
            return []
        self._open = None
        return [_event("content_block_stop", index=self._next - 1)]

    def _delta(self, kind: str, text: str) -> SSEEvent:
        return _event("content_block_delta", index=self._next - 1, delta={"type": f"{kind}_delta", kind: text})

    def _arguments(self, call: GrowingCall, text: str) -> SSEEvent:
        return _event("content_block_delta", index=call.place, delta={"type": "input_json_delta", "partial_json": text})


def _signature(kind: str) -> Body:
    """Thinking of our own has no signature, but clients want the field."""
    return {"signature": ""} if kind == "thinking" else {}


def _event(kind: str, **fields: Any) -> SSEEvent:
    return SSEEvent(kind, orjson.dumps({"type": kind, **fields}).decode())


__all__ = ["ChatToMessages", "ChatToResponses", "stream_of"]
