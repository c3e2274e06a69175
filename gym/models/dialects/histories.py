"""Histories of the Responses and Messages dialects as Chat Completions messages.

One assistant message per turn of the model: its reasoning, its text and its tool calls, which are
items of their own in Responses. Tool results become tool messages right behind it, in their order.
Reasoning goes into the field that the endpoint reads. Encrypted or redacted reasoning is dropped:
only the provider that wrote it can read it, and the endpoint behind us is another.
"""

from dataclasses import dataclass
from typing import Any, Literal

from gym.models.dialects.arguments import arguments_of
from gym.models.dialects.errors import UnsupportedRequest
from gym.models.dialects.parts import Content, Part, block_part, parts_at, responses_content, simplest, text_of

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What the Chat Completions endpoint wants otherwise than the next one."""

    reasoning_field: Literal["reasoning_content", "reasoning"] | None = "reasoning_content"
    """The field of assistant messages for earlier reasoning; None leaves it out."""
    developer_as_system: bool = True
    """Most chat templates know no `developer` role."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    tool_images_as_user: bool = False
    """Images in tool results go into a user message behind the results, for endpoints that take only text from tools."""
    continue_final_message: bool = False
    """Whether the endpoint can go on in an assistant message that ends a Messages request (vLLM can)."""
    disabled_thinking_effort: str | None = "none"
    """The `reasoning_effort` that stands for thinking switched off; None leaves it to the endpoint."""


@dataclass(slots=True)
class _History:
    """Messages as they are made."""

    options: Options
    messages: list[Message]
    turn: Message | None = None
    """The assistant message that what comes next may still belong to."""
    pictures: list[Part] | None = None
    """Images of the tool results just seen, for the user message behind them."""

    def say(self, role: str, content: Content) -> None:
        """A message of anybody but the model and its tools."""
        self.close()
        if role == "developer" and self.options.developer_as_system:
            role = "system"
        self.messages.append({"role": role, "content": content})

    def assistant(self) -> Message:
        """The model's turn, a new one if none is open."""
        if self.turn is None:
            self.close()
            self.turn = {"role": "assistant", "content": None}
            self.messages.append(self.turn)
        return self.turn

    def speak(self, text: str, refusal: str | None = None) -> None:
        """Text of the model. Two texts in a row are two messages; one behind a tool call joins it, since only results may follow that."""
        turn = self.assistant()
        if turn["content"] is not None and "tool_calls" not in turn:
            self.close()
            turn = self.assistant()
        turn["content"] = text if turn["content"] is None else turn["content"] + text
        if refusal is not None:
            turn["refusal"] = refusal
            turn["content"] = turn["content"] or None

    def think(self, text: str) -> None:
        """Reasoning of the model, which comes before what it says."""
        turn = self.assistant()
        if turn["content"] is not None and "tool_calls" not in turn:
            self.close()
            turn = self.assistant()
        field = self.options.reasoning_field
        if field is not None and text:
            turn[field] = f"{turn[field]}\n{text}" if field in turn else text

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A tool call of the model."""
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        self.assistant().setdefault("tool_calls", []).append(call)

    def result(self, call_id: str, content: Content) -> None:
        """A tool's result."""
        self._end_turn()
        if self.options.tool_images_as_user and not isinstance(content, str):
            self.pictures = (self.pictures or []) + [part for part in content if part["type"] != "text"]
            content = simplest([part for part in content if part["type"] == "text"])
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def close(self) -> None:
        """What comes next belongs to nothing before it."""
        self._end_turn()
        if self.pictures:
            self.messages.append({"role": "user", "content": self.pictures})
        self.pictures = None

    def _end_turn(self) -> None:
        turn, self.turn = self.turn, None
        if turn is not None and turn["content"] is None and not ("tool_calls" in turn or "refusal" in turn):
            turn["content"] = ""


def items_to_messages(items: list[Any], options: Options, *, instructions: str | None = None) -> list[Message]:
    """A Responses input as messages. Raises UnsupportedRequest for items that Chat Completions has nothing for."""
    history = _History(options, [])
    if instructions is not None:
        history.say("system", instructions)
    for index, item in enumerate(parts_at(items, "input")):
        where = f"input[{index}]"
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            _add_message(history, item, where)
        elif kind == "function_call":
            arguments: Any = item.get("arguments") or ""
            given = arguments if isinstance(arguments, str) else arguments_of(arguments)
            history.call(_id(item, "call_id", where), str(item.get("name")), given)
        elif kind == "function_call_output":
            history.result(_id(item, "call_id", where), responses_content(item.get("output"), f"{where}.output"))
        elif kind == "reasoning":
            parts: list[Part] = item.get("content") or item.get("summary") or []
            history.think("\n".join(text_of(part) for part in parts_at(parts, f"{where}.content")))
        else:
            raise UnsupportedRequest(where, f"an item of type {kind!r} is not supported")
    history.close()
    return history.messages


def _add_message(history: _History, item: Part, where: str) -> None:
    role, content = item.get("role"), item.get("content")
    if role in ("user", "system", "developer"):
        history.say(role, responses_content(content, f"{where}.content"))
    elif role == "assistant" and isinstance(content, str):
        history.speak(content)
    elif role == "assistant":
        parts = parts_at(content or [], f"{where}.content")
        refusals = [str(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
        said = responses_content([part for part in parts if part.get("type") != "refusal"], f"{where}.content")
        text = said if isinstance(said, str) else "".join(map(text_of, said))
        history.speak(text, "".join(refusals) if refusals else None)
    else:
        raise UnsupportedRequest(f"{where}.role", f"{role!r} is not supported")


def _id(item: Part, name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise UnsupportedRequest(f"{where}.{name}", "is missing")
    return value


def turns_to_messages(turns: list[Any], options: Options, *, system: Any = None) -> list[Message]:
    """The turns of a Messages request as messages. Raises UnsupportedRequest for blocks that Chat Completions has nothing for."""
    history = _History(options, [])
    if system:
        _add_system(history, system, "system")
    for index, turn in enumerate(parts_at(turns, "messages")):
        where = f"messages[{index}].content"
        role, content = turn.get("role"), turn.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else parts_at(content, where)
        if role == "user":
            _add_user_turn(history, blocks, where)
        elif role == "assistant":
            _add_assistant_turn(history, blocks, where)
        elif role == "system":
            _add_system(history, blocks, where)
        else:
            raise UnsupportedRequest(f"messages[{index}].role", f"{role!r} is not supported")
    history.close()
    return history.messages


def _add_system(history: _History, system: Any, where: str) -> None:
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    # Claude Code's billing line is not for the model, and differs in each call: no prompt would continue another.
    blocks = [block for block in parts_at(system, where) if not text_of(block).startswith("x-anthropic-billing-header")]
    if blocks:
        history.say("system", simplest([block_part(block, f"{where}[{index}]") for index, block in enumerate(blocks)]))


def _add_user_turn(history: _History, blocks: list[Part], where: str) -> None:
    """Tool results come first, as the dialect wants them; the rest is what the user says."""
    said: list[Part] = []
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block.get("type") != "tool_result":
            said.append(block_part(block, place))
            continue
        given: Any = block.get("content")
        if given is None or isinstance(given, str):
            content: Content = given or ""
        else:
            content = simplest([block_part(part, f"{place}.content[{n}]") for n, part in enumerate(parts_at(given, f"{place}.content"))])
        history.result(_id(block, "tool_use_id", place), _as_error(content) if block.get("is_error") else content)
    if said or not blocks:
        history.say("user", simplest(said))


def _as_error(content: Content) -> Content:
    """A tool message has no flag for errors, so its text has to say it."""
    if isinstance(content, str):
        return content if content.lower().startswith("error") else f"Error: {content}"
    return [{"type": "text", "text": "Error:"}, *content]


def _add_assistant_turn(history: _History, blocks: list[Part], where: str) -> None:
    texts: list[str] = []
    history.close()
    for index, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block))
        elif kind == "thinking":
            history.think(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            history.call(_id(block, "id", f"{where}[{index}]"), str(block.get("name")), arguments_of(block.get("input") or {}))
        elif kind != "redacted_thinking":
            raise UnsupportedRequest(f"{where}[{index}]", f"a block of type {kind!r} is not supported")
    if texts:
        turn = history.assistant()
        turn["content"] = "".join(texts)
    history.assistant()
    history.close()
