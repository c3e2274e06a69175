"""From the events of a streamed reply to the reply as if it had not been streamed.

An assembler reads whatever it is given without ever raising: events that are no JSON, or of a kind
it does not know, change nothing. Fields it does not know are kept, lists of them (token ids, log
probabilities) joined. Each event is read once; text is kept in pieces until somebody asks. What is
left out: judging a reply that is not finished. `result` then says what there was of it.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

import orjson

from gym.models.calls import Dialect
from gym.models.dialects.arguments import input_of
from gym.models.dialects.fields import Fields, fields_of, list_of
from gym.models.sse import SSEEvent


class Assembler(Protocol):
    """What reads the events of one streamed reply."""

    finished: bool
    """The dialect's terminal event was seen: nothing is missing."""
    error: Fields | None
    """The error that the stream reported, if it did."""

    def add(self, event: SSEEvent) -> None:
        """Read the next event."""
        ...

    def result(self) -> Fields | None:
        """The reply as far as it came; None if there was nothing of it."""
        ...


def assembler(dialect: Dialect) -> Assembler:
    """A new assembler for streamed replies of `dialect`."""
    return _ASSEMBLERS[dialect]()


class _Pieces(list[str]):
    """Text that grows."""


def _joined(value: Any) -> Any:
    """`value` with all text in one piece; a new object wherever something could still grow."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: _joined(item) for key, item in cast(Fields, value).items()}
    if isinstance(value, list):
        return [_joined(item) if isinstance(item, (dict, list)) else item for item in cast(list[Any], value)]
    return value


def _data(event: SSEEvent) -> Fields:
    try:
        return fields_of(orjson.loads(event.data))
    except orjson.JSONDecodeError:
        return {}


def _index(data: Fields, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def _pieces(place: Fields, field: str) -> _Pieces:
    """The text of a field, as it grows."""
    held = place.get(field)
    if not isinstance(held, _Pieces):
        held = place[field] = _Pieces([held] if held and isinstance(held, str) else [])
    return held


def _error_in(value: Any) -> Fields:
    return fields_of(value) or {"message": str(value)}


_SAID_ONCE = frozenset({"role", "type", "id"})
"""Strings of a delta that are no text: a repeat replaces them."""


class _Chat:
    """Chat Completions: chunks with deltas for each choice, and `[DONE]`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: Fields | None = None
        self._fields: Fields = {}
        self._choices: dict[int, Fields] = {}

    def add(self, event: SSEEvent) -> None:
        if event.data == "[DONE]":
            self.finished = True
            return
        chunk = _data(event)
        if chunk.get("error"):
            self.error = _error_in(chunk["error"])
            return
        for key, value in chunk.items():
            if key == "choices":
                for choice in list_of(value):
                    self._add_choice(choice)
            elif value is not None or key not in self._fields:
                self._fields[key] = value

    def _add_choice(self, given: Any) -> None:
        fields = fields_of(given)
        index = _index(fields, "index")
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
        for key, value in fields.items():
            if key == "delta":
                _grow(choice["message"], fields_of(value))
            elif key == "message":
                continue
            elif isinstance(value, (dict, list)):
                _grow(choice, {key: value})
            elif value is not None or key not in choice:
                choice[key] = value

    def result(self) -> Fields | None:
        if not self._fields and not self._choices:
            return None
        choices = [_joined(self._choices[index]) for index in sorted(self._choices)]
        for choice in choices:
            calls = choice["message"].get("tool_calls")
            if isinstance(calls, dict):
                choice["message"]["tool_calls"] = [calls[index] for index in sorted(cast(dict[int, Any], calls))]
        return {**self._fields, "object": "chat.completion", "choices": choices}


def _grow(into: Fields, delta: Fields) -> None:
    """Add a delta: text to text, lists to lists, objects by their keys; anything else replaces what was there."""
    for key, value in delta.items():
        if isinstance(value, str) and key not in _SAID_ONCE:
            _pieces(into, key).append(value)
        elif value is None:
            into.setdefault(key, None)
        elif key == "tool_calls":
            _grow_calls(into, list_of(value))
        elif isinstance(value, list):
            into[key] = held = list_of(into.get(key))
            held.extend(cast(list[Any], value))
        elif isinstance(value, dict):
            into[key] = held = fields_of(into.get(key))
            _grow(held, cast(Fields, value))
        else:
            into[key] = value


def _grow_calls(into: Fields, deltas: list[Any]) -> None:
    """Tool calls are told apart by their index; where an endpoint gives none, an id begins a new one."""
    calls = cast(dict[int, Fields], fields_of(into.get("tool_calls")))
    into["tool_calls"] = calls
    for delta in deltas:
        fields = fields_of(delta)
        index = fields.pop("index", None)
        if not isinstance(index, int):
            index = len(calls) if fields.get("id") or not calls else max(calls)
        _grow(calls.setdefault(index, {}), fields)


_RESPONSES_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})

_RESPONSES_DELTAS: dict[str, tuple[str, str, str]] = {
    "response.output_text.delta": ("content", "content_index", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "text"),
    "response.function_call_arguments.delta": ("", "", "arguments"),
    "response.custom_tool_call_input.delta": ("", "", "input"),
}
"""Kind of delta -> the item's list that it belongs to, where in the event its index is, and the field that grows."""

_RESPONSES_PARTS: dict[str, tuple[str, str]] = {
    "response.content_part.added": ("content", "content_index"),
    "response.reasoning_part.added": ("content", "content_index"),
    "response.reasoning_summary_part.added": ("summary", "summary_index"),
}


class _Responses:
    """Responses: the terminal event carries the whole reply; until it is here, items are kept as they grow."""

    def __init__(self) -> None:
        self.finished = False
        self.error: Fields | None = None
        self._response: Fields | None = None
        self._items: dict[int, Fields] = {}

    def add(self, event: SSEEvent) -> None:
        data = _data(event)
        if self.finished:
            return
        kind = str(data.get("type") or event.event)
        if kind in _RESPONSES_DELTAS:
            name, index_name, field = _RESPONSES_DELTAS[kind]
            _pieces(self._place(data, name, index_name), field).append(str(data.get("delta") or ""))
        elif kind in _RESPONSES_PARTS:
            self._place(data, *_RESPONSES_PARTS[kind]).update(fields_of(data.get("part")))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[_index(data, "output_index")] = fields_of(data.get("item"))
        elif kind == "error":
            self.error = _error_in(data.get("error") or {key: data.get(key) for key in ("code", "message", "param")})
        elif response := fields_of(data.get("response")):
            self._response = response
            self.finished = kind in _RESPONSES_TERMINAL
            self.error = fields_of(response.get("error")) or self.error
            if self.finished and response.get("output") is not None:
                self._items = {}

    def _place(self, data: Fields, name: str, index_name: str) -> Fields:
        """The item, or the part of it, that an event speaks of."""
        item = self._items.setdefault(_index(data, "output_index"), {})
        if not name:
            return item
        item[name] = parts = list_of(item.get(name))
        index = min(_index(data, index_name), len(parts))
        if index == len(parts):
            parts.append({})
        parts[index] = part = fields_of(parts[index])
        return part

    def result(self) -> Fields | None:
        if self._response is None and not self._items:
            return None
        response = self._response or {"object": "response"}
        if not self._items and response.get("output") is not None:
            return response
        return {**response, "output": [_joined(self._items[index]) for index in sorted(self._items)]}


_MESSAGES_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class _Messages:
    """Messages: blocks one after the other, then the reason to stop, and `message_stop`."""

    def __init__(self) -> None:
        self.finished = False
        self.error: Fields | None = None
        self._message: Fields | None = None
        self._blocks: dict[int, Fields] = {}

    def add(self, event: SSEEvent) -> None:
        data = _data(event)
        kind = data.get("type") or event.event
        if kind == "content_block_delta":
            self._add_delta(self._blocks.setdefault(_index(data, "index"), {}), fields_of(data.get("delta")))
        elif kind == "content_block_start":
            self._blocks[_index(data, "index")] = fields_of(data.get("content_block"))
        elif kind == "message_start":
            self._message = fields_of(data.get("message"))
        elif kind == "message_delta":
            message = self._message or {}
            usage = {name: count for name, count in (fields_of(data.get("usage"))).items() if count is not None}
            self._message = {**message, **(fields_of(data.get("delta"))), "usage": {**(fields_of(message.get("usage"))), **usage}}
        elif kind == "message_stop":
            self.finished = True
        elif kind == "error":
            self.error = _error_in(data.get("error"))

    def _add_delta(self, block: Fields, delta: Fields) -> None:
        kind = delta.get("type")
        field = _MESSAGES_DELTAS.get(str(kind))
        if field is not None:
            _pieces(block, field).append(str(delta.get(field) or ""))
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            block["citations"] = [*list_of(block.get("citations")), delta.get("citation")]

    def result(self) -> Fields | None:
        if self._message is None and not self._blocks:
            return None
        blocks = [_joined(self._blocks[index]) for index in sorted(self._blocks)]
        for block in blocks:
            if isinstance(block.get("partial_json"), str):
                block["input"] = input_of(block.pop("partial_json"))
        return {**(self._message or {"type": "message", "role": "assistant"}), "content": blocks}


_ASSEMBLERS: dict[Dialect, Callable[[], Assembler]] = {"chat_completions": _Chat, "responses": _Responses, "messages": _Messages}
