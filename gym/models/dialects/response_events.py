"""The events of a streamed Responses reply: their order, their numbers, their fields.

An item is added hollow, its parts are added hollow, text comes in deltas, and each is done with the
whole of it, from the inside out. Items may be open side by side.
"""

from typing import Any

import orjson

from gym.models.dialects.items import Item
from gym.models.sse import SSEEvent

_TEXT_FIELDS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}
"""Part type -> the name its events share, and the field that holds its text."""


class ResponseEvents:
    """Makes the events of one stream, numbered from 0."""

    def __init__(self) -> None:
        self.next_number = 0

    def event(self, kind: str, fields: dict[str, Any]) -> SSEEvent:
        """The next event."""
        data = {"type": kind, "sequence_number": self.next_number, **fields}
        self.next_number += 1
        return SSEEvent(kind, orjson.dumps(data).decode())

    def begun(self, response: dict[str, Any]) -> list[SSEEvent]:
        """The two events that begin every stream."""
        return [self.event(f"response.{kind}", {"response": response}) for kind in ("created", "in_progress")]

    def ended(self, response: dict[str, Any]) -> SSEEvent:
        """The terminal event, which is named by the response's status."""
        return self.event(f"response.{response['status']}", {"response": response})

    def added(self, index: int, item: Item) -> SSEEvent:
        """A hollow item begins."""
        return self.event("response.output_item.added", {"output_index": index, "item": item})

    def done(self, index: int, item: Item) -> SSEEvent:
        """An item is whole."""
        return self.event("response.output_item.done", {"output_index": index, "item": item})

    def part_added(self, index: int, item_id: str, place: int, part: Item) -> SSEEvent:
        """A part of an item's content begins, hollow."""
        part = hollow_part(part)
        return self.event("response.content_part.added", {"output_index": index, "item_id": item_id, "content_index": place, "part": part})

    def text(self, index: int, item_id: str, place: int, kind: str, delta: str, logprobs: list[Item] | None = None) -> SSEEvent:
        """More text of the part, which is of type `kind`."""
        fields: dict[str, Any] = {"output_index": index, "item_id": item_id, "content_index": place, "delta": delta}
        if kind == "output_text":
            fields["logprobs"] = logprobs or []
        return self.event(f"{_TEXT_FIELDS[kind][0]}.delta", fields)

    def part_done(self, index: int, item_id: str, place: int, part: Item) -> list[SSEEvent]:
        """A part is whole."""
        fields: dict[str, Any] = {"output_index": index, "item_id": item_id, "content_index": place}
        events: list[SSEEvent] = []
        if is_text_part(part):
            name, field = _TEXT_FIELDS[part["type"]]
            whole: Item = {field: part[field]}
            if part["type"] == "output_text":
                whole["logprobs"] = part.get("logprobs") or []
            events.append(self.event(f"{name}.done", {**fields, **whole}))
        return [*events, self.event("response.content_part.done", {**fields, "part": part})]

    def arguments(self, index: int, item_id: str, delta: str) -> SSEEvent:
        """More of a call's arguments."""
        return self.event("response.function_call_arguments.delta", {"output_index": index, "item_id": item_id, "delta": delta})

    def call_done(self, index: int, item: Item) -> list[SSEEvent]:
        """A call is whole."""
        fields = {"output_index": index, "item_id": item.get("id"), "name": item.get("name"), "arguments": item.get("arguments")}
        return [self.event("response.function_call_arguments.done", fields), self.done(index, item)]


def is_text_part(part: Item) -> bool:
    """Whether a part of content has text that comes in deltas."""
    return part.get("type") in _TEXT_FIELDS


def text_in(part: Item) -> str:
    """The text of such a part."""
    return part.get(_TEXT_FIELDS[part["type"]][1]) or ""


def hollow_part(part: Item) -> Item:
    """The part before its text."""
    if not is_text_part(part):
        return part
    hollow = {**part, _TEXT_FIELDS[part["type"]][1]: ""}
    if "logprobs" in hollow:
        hollow["logprobs"] = []
    return hollow
