"""A rollout as Chat Completions messages: what TRL and verl read besides token ids.

Text only: a column of a data set has one type, and images in some rows would change that of all.
"""

from dataclasses import dataclass
from typing import Any, cast

from gym.models.dialects.errors import UnsupportedRequest
from gym.models.dialects.histories import Message
from gym.models.dialects.to_chat import Options, responses_to_chat
from gym.protocol.responses import Item
from gym.rollouts.export.rollout import Rollout, Unusable


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was asked, what came of it, and with which tools. Every content is text; a message that has none holds ""."""

    prompt: list[Message]
    completion: list[Message]
    tools: list[dict[str, Any]]


def conversation_of(rollout: Rollout) -> Conversation:
    """The messages of a rollout. Raises Unusable for what they cannot say."""
    asked = {name: rollout.params.get(name) for name in ("instructions", "tools")}
    prompt, tools = _as_chat({**asked, "input": rollout.input_items})
    completion, _ = _as_chat({"input": rollout.output})
    if not any(message["role"] == "assistant" for message in completion):
        raise Unusable("no answer of the model")
    return Conversation(prompt, completion, tools)


def _as_chat(body: dict[str, Any]) -> tuple[list[Message], list[dict[str, Any]]]:
    try:
        chat = responses_to_chat(body, Options())
    except UnsupportedRequest as error:
        raise Unusable("what Chat messages cannot say", str(error)) from error
    return [{**message, "content": _text(message)} for message in chat["messages"]], chat.get("tools") or []


def _text(message: Message) -> str:
    content: Any = message.get("content")
    if content is None:
        return str(message.pop("refusal", None) or "")
    if isinstance(content, str):
        return content
    parts = cast(list[Item], content)
    if any(part.get("type") != "text" for part in parts):
        raise Unusable("content that is not text")
    return "".join(str(part["text"]) for part in parts)
