"""What a command-line harness is told, out of a Responses request: one text.

Invariant: what cannot be said as one text (a conversation under way, images, tools that were not granted) is refused, never left out.
"""

from collections.abc import Collection, Iterable

from gym.protocol.errors import ContractError
from gym.protocol.responses import Item, ResponseCreateParams, message_text

_TOLD = ("system", "developer", "user")
_TEXT = ("input_text", "text")


def prompt_of(params: ResponseCreateParams, title: str, granted: Collection[str] = ()) -> str:
    """Instructions and all messages, a blank line between them; tools of the task that are `granted` need no telling.

    Raises ContractError (422).
    """
    return _joined(told_apart(params, title, granted))


def told_apart(params: ResponseCreateParams, title: str, granted: Collection[str] = ()) -> tuple[str, str]:
    """As `prompt_of`, but apart: instructions, with system and developer messages that lead; then the task, which is never empty."""
    others = [str(tool.get("name") or tool.get("type")) for tool in params.tools or [] if tool.get("name") not in granted]
    if others:
        reason = f"the task offers {', '.join(others)} in 'tools', and grants none such over MCP"
        raise ContractError(422, f"{title} brings its own tools, but {reason}")
    instructions = (params.model_extra or {}).get("instructions")
    leading, rest = [str(instructions)] if instructions else [], list[str]()
    for item in params.input_items():
        text = _told(item, title)
        (leading if not rest and item.get("role") in ("system", "developer") else rest).append(text)
    before, task = _joined(leading), _joined(rest)
    if not before + task:
        raise ContractError(422, f"{title} was told nothing: the task's input has no text")
    if "\0" in before + task:
        raise ContractError(422, f"{title} cannot be told a text with a NUL in it")
    return (before, task) if task else ("", before)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part.strip())


def _told(item: Item, title: str) -> str:
    kind, role = item.get("type", "message"), item.get("role")
    if kind != "message" or role not in _TOLD:
        raise ContractError(422, f"{title} begins a conversation, but the task's input has a {kind} of role {role!r}")
    content = item.get("content")
    if isinstance(content, list):
        other = {str(part.get("type")) for part in content if isinstance(part, dict)} - {*_TEXT}  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType] - open data
        if other:
            raise ContractError(422, f"{title} is told text alone, but the task's input has {', '.join(sorted(other))}")
    return message_text(item)
