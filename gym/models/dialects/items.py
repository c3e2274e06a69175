"""What a Responses reply consists of: its items, and the object around them as it begins and as it ends.

Ids are made from the completion's id and the item's place, so that a streamed reply and the same one
read whole agree in everything, and a conversion made twice gives the same.
"""

from typing import Any
from uuid import uuid4

from gym.models.dialects.fields import count_of, fields_of, list_of

Item = dict[str, Any]
Body = dict[str, Any]

_PREFIXES = ("chatcmpl-", "chatcmpl_", "resp_", "msg_")


def base_id(completion: Body) -> str:
    """The part of a completion's id that its reply's ids share; a new one for an endpoint that gives none."""
    given = str(completion.get("id") or uuid4().hex)
    prefix = next((prefix for prefix in _PREFIXES if given.startswith(prefix)), "")
    return given[len(prefix) :] or given


def reasoning_item(item_id: str, text: str, status: str = "completed") -> Item:
    """What the model thought, as plain text."""
    return {"type": "reasoning", "id": item_id, "summary": [], "content": [{"type": "reasoning_text", "text": text}], "status": status}


def message_item(item_id: str, parts: list[Item], status: str = "completed") -> Item:
    """What the model said."""
    return {"type": "message", "id": item_id, "role": "assistant", "status": status, "content": parts}


def text_part(text: str, logprobs: list[Item] | None = None) -> Item:
    """Text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def refusal_part(text: str) -> Item:
    """A refusal in place of text."""
    return {"type": "refusal", "refusal": text}


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> Item:
    """A call of a function."""
    return {"type": "function_call", "id": item_id, "call_id": call_id, "name": name, "arguments": arguments, "status": status}


def wants_logprobs(request: Body) -> bool:
    """Whether a Responses request asks for log probabilities; an engine may give them unasked, for training."""
    return request.get("top_logprobs") is not None or "message.output_text.logprobs" in list_of(request.get("include"))


def text_logprobs(logprobs: Any) -> list[Item]:
    """The log probabilities of a Chat choice as those of a text part, which must have the token's bytes."""
    entries = map(fields_of, list_of(fields_of(logprobs).get("content")))
    return [{**_logprob(entry), "top_logprobs": [_logprob(top) for top in list_of(entry.get("top_logprobs"))]} for entry in entries]


def _logprob(given: Any) -> Item:
    entry = fields_of(given)
    token = str(entry.get("token"))
    written = entry.get("bytes")
    return {"token": token, "logprob": entry.get("logprob"), "bytes": written if written is not None else list(token.encode())}


def begun_response(base: str, completion: Body, request: Body) -> Body:
    """A Responses object without output. It repeats the request, and says what holds here: nothing is stored or truncated."""
    echoed = {name: request.get(name) for name in ("instructions", "max_output_tokens", "temperature", "top_p", "user")}
    return {
        "id": f"resp_{base}",
        "object": "response",
        "created_at": float(completion.get("created") or 0),
        "model": str(completion.get("model") or request.get("model") or ""),
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        **echoed,
        "metadata": request.get("metadata") or {},
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
        "store": False,
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "truncation": "disabled",
    }


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_WHOLE = frozenset({"stop", "tool_calls", "function_call"})


def item_status(finish_reason: str | None) -> str:
    """The status of the reply, and of its last item. An answer that ended for no good reason is not complete."""
    return "completed" if finish_reason in _WHOLE else "incomplete"


def ended_response(begun: Body, output: list[Item], finish_reason: str | None, usage: Any) -> Body:
    """The Responses object that a reply amounts to."""
    status = item_status(finish_reason)
    details = None if status == "completed" else {"reason": _INCOMPLETE.get(finish_reason or "")}
    return {**begun, "status": status, "incomplete_details": details, "output": output, "usage": responses_usage(usage)}


def responses_usage(usage: Any) -> Body | None:
    """Chat usage in Responses' words; None where there is none."""
    counts = fields_of(usage)
    if not counts:
        return None
    read, written = count_of(counts.get("prompt_tokens")), count_of(counts.get("completion_tokens"))
    prompt, completion = fields_of(counts.get("prompt_tokens_details")), fields_of(counts.get("completion_tokens_details"))
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": count_of(prompt.get("cached_tokens")),
            "cache_write_tokens": count_of(prompt.get("cache_write_tokens")),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": count_of(completion.get("reasoning_tokens"))},
        "total_tokens": count_of(counts.get("total_tokens")) or read + written,
    }
