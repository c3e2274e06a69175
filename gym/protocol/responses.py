"""The Responses dialect, as far as servers need to look into it.

Items stay plain dictionaries: they belong to the model and the harness, and a field that we do
not know must reach the rollout unharmed.
"""

import uuid
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

Item = dict[str, Any]


class ResponseCreateParams(BaseModel):
    """The body of `POST /v1/responses`; everything but `input` is passed on as it came."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    input: str | list[Item]
    tools: list[Item] | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None

    def input_items(self) -> list[Item]:
        """The input as a list of items (a bare string is one user message); a new list each time."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return list(self.input)


class Response(BaseModel):
    """A Responses object: what an agent, or a model, answered."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    id: str
    object: Literal["response"] = "response"
    created_at: float = 0.0
    model: str = ""
    status: str | None = None
    output: list[Item]
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    tools: list[Item] = Field(default_factory=list[Item])
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True


def function_calls(output: list[Item]) -> list[Item]:
    """The function calls among `output`, in order."""
    return [item for item in output if item.get("type") == "function_call"]


def function_call_output(call_id: str, output: str) -> Item:
    """The item that carries a tool's result back to the model."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def message_text(item: Item) -> str:
    """The text of a message item of any role; "" for an item that is none."""
    content: Any = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [cast(Item, part) for part in cast(list[Any], content) if isinstance(part, dict)]
    return "".join(str(part.get("text") or "") for part in parts)


def output_text(output: list[Item]) -> str:
    """All text that the assistant wrote in `output`, joined by newlines."""
    texts = [message_text(item) for item in output if item.get("type", "message") == "message"]
    return "\n".join(text for text in texts if text)


def assistant_message(text: str) -> Item:
    """A finished assistant message item."""
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


_USAGE: dict[str, Any] = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def add_usage(total: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    """The sum of two usage objects, details included; None stands for "not reported"."""
    if more is None:
        return total
    return _added(total or _USAGE, more)


def _added(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    summed = dict(base)
    for key, value in more.items():
        if isinstance(value, dict):
            summed[key] = _added(base.get(key) or {}, cast(dict[str, Any], value))
        elif isinstance(value, (int, float)):
            summed[key] = (base.get(key) or 0) + value
    return summed
