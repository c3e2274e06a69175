"""Chat Completions replies, and histories, in the words of the other dialects.

Only the first choice is read: the requests that lead here ask for one. A reply is never without
content in Responses: a model that said nothing said the empty text, which is an item that token ids
can stand on.
"""

from hashlib import blake2b
from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.dialects.arguments import input_of
from gym.models.dialects.fields import count_of, fields_of, list_of
from gym.models.dialects.histories import Options, turns_to_messages
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
from gym.models.dialects.parts import responses_parts, text_of
from gym.protocol.errors import ContractError


def chat_to_reply(dialect: Dialect, completion: Body, request: Body) -> Body:
    """A completion as a reply of any dialect; `request` is the client's own."""
    if dialect == "responses":
        return chat_to_response(completion, request)
    return chat_to_message(completion, request) if dialect == "messages" else completion


def chat_to_response(completion: Body, request: Body) -> Body:
    """A completion as a Responses object; `request` is what it answers. Raises ContractError (502) without a choice."""
    choice = first_choice(completion)
    base = base_id(completion)
    output = _items(choice["message"], base, text_logprobs(choice.get("logprobs")) if wants_logprobs(request) else None)
    finish_reason = choice.get("finish_reason")
    output[-1]["status"] = item_status(finish_reason)
    return ended_response(begun_response(base, completion, request), output, finish_reason, completion.get("usage"))


def chat_to_message(completion: Body, request: Body) -> Body:
    """A completion as a Messages message; `request` is what it answers. Raises ContractError (502) without a choice."""
    choice = first_choice(completion)
    message, base = fields_of(choice["message"]), base_id(completion)
    blocks: list[Body] = []
    if thought := reasoning_of(message):
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    refusal = message.get("refusal") or ""
    if said := _said(message) + refusal:
        blocks.append({"type": "text", "text": said})
    calls = _calls(message, base)
    blocks += [tool_use_block(call_id, name, input_of(arguments)) for call_id, name, arguments in calls]
    reason, sequence = stop_of(choice.get("finish_reason"), choice.get("stop_reason"), called=bool(calls), refused=bool(refusal))
    ended = {"content": blocks, "stop_reason": reason, "stop_sequence": sequence, "usage": messages_usage(completion.get("usage"))}
    return {**begun_message(base, completion, request), **ended}


def message_to_items(message: Body) -> list[Item]:
    """An assistant's Chat message as items. Their ids come from what it says, as it has no other."""
    return _items(message, blake2b(orjson.dumps(message, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest())


def messages_to_items(messages: list[Body]) -> list[Item]:
    """A Chat history as items; the ids of the model's own come from their place."""
    items: list[Item] = []
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            items += _items(message, f"h{index}")
        elif role == "tool":
            output = responses_parts(content) if isinstance(content, list) else content or ""
            items.append({"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output})
        else:
            items.append({"type": "message", "role": role, "content": responses_parts(content)})
    return items


def anthropic_to_items(messages: list[Any], system: Any = None) -> list[Item]:
    """A Messages history as items. Raises UnsupportedRequest for blocks that have no counterpart."""
    return messages_to_items(turns_to_messages(messages, Options(), system=system))


def first_choice(completion: Body) -> Body:
    """The choice that a reply is made of, with its message."""
    choices = list_of(completion.get("choices"))
    choice = fields_of(choices[0]) if choices else {}
    if not isinstance(choice.get("message"), dict):
        raise ContractError(502, "the endpoint answered with a completion that has no message", kind="agent_request_failed")
    return choice


def reasoning_of(message: Body) -> str:
    """What the model thought, under whichever name the endpoint gives it; also of a delta."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    return thought if isinstance(thought, str) else ""


def _said(message: Body) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(text_of(part) for part in list_of(content))


def _calls(message: Body, base: str) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each tool call."""
    calls: list[tuple[str, str, str]] = []
    for position, call in enumerate(map(fields_of, list_of(message.get("tool_calls")))):
        function = fields_of(call.get("function"))
        calls.append((call.get("id") or call_id_at(base, position), function.get("name") or "", function.get("arguments") or ""))
    return calls


def call_id_at(base: str, position: int) -> str:
    """The id of a reply's call number `position`, from 0, for endpoints that give none."""
    return f"call_{base}_{position}"


def _items(message: Body, base: str, logprobs: list[Item] | None = None) -> list[Item]:
    items: list[Item] = []
    if thought := reasoning_of(message):
        items.append(reasoning_item(f"rs_{base}_0", thought))
    text, refusal, calls = _said(message), message.get("refusal"), _calls(message, base)
    if text or refusal or not (items or calls):
        parts = [text_part(text, logprobs)] if text or not refusal else []
        parts += [refusal_part(refusal)] if refusal else []
        items.append(message_item(f"msg_{base}_{len(items)}", parts))
    for call_id, name, arguments in calls:
        items.append(call_item(f"fc_{base}_{len(items)}", call_id, name, arguments))
    return items


def tool_use_block(call_id: str, name: str, given: Body) -> Body:
    """A call of a tool in Messages' words."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def begun_message(base: str, completion: Body, request: Body) -> Body:
    """A Messages message before it has content."""
    return {
        "id": f"msg_{base}",
        "type": "message",
        "role": "assistant",
        "model": str(completion.get("model") or request.get("model") or ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": messages_usage(None),
    }


_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def stop_of(finish_reason: Any, stopped_at: Any, *, called: bool, refused: bool) -> tuple[str | None, str | None]:
    """Why the model stopped, and the stop sequence if it was one; `stopped_at` is vLLM's `stop_reason`, which names it."""
    if refused:
        return "refusal", None
    if finish_reason == "stop" and called:
        return "tool_use", None
    if finish_reason == "stop" and isinstance(stopped_at, str):
        return "stop_sequence", stopped_at
    return _STOP_REASONS.get(finish_reason), None


def messages_usage(usage: Any) -> Body:
    """Chat usage in Messages' words, where what was read from a cache is not counted as input."""
    counts = fields_of(usage)
    cached = count_of(fields_of(counts.get("prompt_tokens_details")).get("cached_tokens"))
    return {
        "input_tokens": max(0, count_of(counts.get("prompt_tokens")) - cached),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": count_of(counts.get("completion_tokens")),
    }
