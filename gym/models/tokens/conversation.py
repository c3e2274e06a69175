"""Requests and replies of any dialect as Responses items, and as keys that can be compared.

Owns what counts as the same thing said: who says it, and what. Ids, status fields and the spelling
of arguments as JSON do not count; a client may rewrite those without changing what was said.
Invariant: a message that stands in many requests is looked at once.

Left out: tokens, and what follows from a difference (`breaks`).
"""

from typing import Any, cast

import orjson

from gym.models.calls import Dialect, ModelCall
from gym.models.dialects.from_chat import anthropic_to_items, message_to_items, messages_to_items
from gym.protocol.responses import Item, message_text

Key = tuple[str, ...]
"""What an item says, and in which role."""

_FRAME = ("instructions", "system", "tools")
"""What of a request stands before its messages."""
_ANSWERS = ("_output", "_response", "item_reference")
"""How the types of items end that are no message and that a client adds."""


def is_own(item: Item) -> bool:
    """Whether a model made an item or message: an assistant's message, reasoning, a call; no result, and nobody else's message."""
    role = item.get("role")
    if role is not None:
        return role == "assistant"
    return not str(item.get("type")).endswith(_ANSWERS)


def messages_of(call: ModelCall) -> list[Item]:
    """The history in a request, as the dialect has it: input items, or messages."""
    said: Any = call.request.get("input" if call.dialect == "responses" else "messages")
    if isinstance(said, str):
        return [{"type": "message", "role": "user", "content": said}]
    return objects(said)


def turns(messages: list[Item]) -> int:
    """How often the model has spoken: the runs of what is its own."""
    count, speaking = 0, False
    for message in messages:
        own = is_own(message)
        count += own and not speaking
        speaking = own
    return count


def as_items(dialect: Dialect, messages: list[Item]) -> list[Item]:
    """Messages of a request as Responses items."""
    match dialect:
        case "responses":
            return messages
        case "chat_completions":
            return messages_to_items(messages)
        case "messages":
            return anthropic_to_items(messages, None)


def reply_items(call: ModelCall) -> list[Item]:
    """What the model said in a call, as Responses items; none if nothing can be read."""
    reply: Any = call.response or {}
    match call.dialect:
        case "responses":
            return objects(reply.get("output"))
        case "chat_completions":
            choices = objects(reply.get("choices"))
            message: Any = choices[0].get("message") if choices else None
            return message_to_items(cast(Item, message)) if isinstance(message, dict) else []
        case "messages":
            content = reply.get("content")
            return anthropic_to_items([{"role": "assistant", "content": content}], None) if content else []


def key_of(item: Item) -> Key | None:
    """What an item says; None for one that says nothing."""
    kind = str(item.get("type") or "message")
    match kind:
        case "message":
            other = [part for part in objects(item.get("content")) if part.get("type") not in ("input_text", "output_text", "text")]
            text = message_text(item)
            return (str(item.get("role")), text, *map(_plain, other)) if text or other else None
        case "reasoning":
            text = "".join(str(part.get("text") or "") for part in objects(item.get("content")) or objects(item.get("summary")))
            return (kind, text) if text else None
        case "function_call":
            return (kind, str(item.get("name")), _arguments(item.get("arguments")))
        case "function_call_output":
            return (kind, _plain(item.get("output")))
        case _:
            return (kind, _plain(item))


def objects(values: Any) -> list[Item]:
    """The objects in a list of a body that anybody may have written."""
    return [cast(Item, value) for value in cast(list[Any], values) if isinstance(value, dict)] if isinstance(values, list) else []


def _arguments(written: Any) -> str:
    try:
        return _plain(orjson.loads(written)) if isinstance(written, str) else _plain(written)
    except orjson.JSONDecodeError:
        return str(written)


def _plain(value: Any) -> str:
    """A value as text, without what names it or steers a cache."""
    if isinstance(value, dict):
        value = {name: each for name, each in cast(Item, value).items() if name not in ("id", "call_id", "status", "cache_control")}
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


class Reader:
    """Reads the calls of one rollout. Requests that share a message's object share what was read of it."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[Item, list[Key]]] = {}
        """By identity; the message is kept, so that no other can get its place in memory."""
        self._requests: dict[int, list[Key]] = {}
        """By the call's index."""

    def request(self, call: ModelCall) -> list[Key]:
        """What a request says, item by item, after a first key for what stands before its messages."""
        known = self._requests.get(call.index)
        if known is None:
            known = [("frame", _plain([call.request.get(name) for name in _FRAME]))]
            for message in messages_of(call):
                known += self._message(call.dialect, message)
            self._requests[call.index] = known
        return known

    def reply(self, call: ModelCall) -> list[Key]:
        """What a reply says, item by item."""
        return [key for item in reply_items(call) if (key := key_of(item)) is not None]

    def _message(self, dialect: Dialect, message: Item) -> list[Key]:
        if id(message) not in self._messages:
            items = as_items(dialect, [message])
            self._messages[id(message)] = message, [key for item in items if (key := key_of(item)) is not None]
        return self._messages[id(message)][1]


def is_own_key(key: Key) -> bool:
    """Whether a model said it."""
    return key[0] not in ("frame", "user", "system", "developer", "tool") and not key[0].endswith(_ANSWERS)
