"""What a reply says of itself, in whatever dialect: tokens, why it ended, and what kind of error it is.

Replies come from endpoints of all kinds, so nothing is taken for granted: what is not there, or is no number, is not known.
"""

from typing import Any

from gym.models.calls import Dialect, ModelCall
from gym.models.dialects.fields import fields_of, known_count, list_of

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "refusal": "content_filter",
}


INFRASTRUCTURE = {"timeout", "connection", "rate_limit", "auth", "not_found", "upstream_error", "stream_truncated", "exception"}
"""Error categories that are neither the request's fault nor come of the agent's leaving."""


def broke(call: ModelCall) -> bool:
    """Whether a call failed for what is not the agent's own doing: neither its request nor that it left."""
    return call.error_category in INFRASTRUCTURE


def note_reply(call: ModelCall) -> None:
    """Fill in what the call's response says of itself."""
    response = call.response or {}
    usage = fields_of(response.get("usage"))
    call.finish_reason = finish_reason(call.dialect, response)
    if call.dialect == "messages":
        read, made = known_count(usage.get("cache_read_input_tokens")), known_count(usage.get("cache_creation_input_tokens"))
        fresh = known_count(usage.get("input_tokens"))
        call.input_tokens = None if fresh is None else fresh + (read or 0) + (made or 0)
        call.cached_tokens = read
        call.output_tokens = known_count(usage.get("output_tokens"))
        return
    before, after = ("input", "output") if call.dialect == "responses" else ("prompt", "completion")
    call.input_tokens = known_count(usage.get(f"{before}_tokens"))
    call.output_tokens = known_count(usage.get(f"{after}_tokens"))
    call.cached_tokens = known_count(fields_of(usage.get(f"{before}_tokens_details")).get("cached_tokens"))
    call.reasoning_tokens = known_count(fields_of(usage.get(f"{after}_tokens_details")).get("reasoning_tokens"))


def finish_reason(dialect: Dialect, response: dict[str, Any]) -> str | None:
    """Why the model stopped, in Chat Completions' words; None if the reply does not say so, as one that was cut does not."""
    if dialect == "messages":
        return _reason(response.get("stop_reason"))
    if dialect == "chat_completions":
        choices = list_of(response.get("choices"))
        return _reason(fields_of(choices[0]).get("finish_reason")) if choices else None
    if response.get("status") == "incomplete":
        return _reason(fields_of(response.get("incomplete_details")).get("reason"))
    if response.get("status") != "completed":
        return None
    return "tool_calls" if any(fields_of(item).get("type") == "function_call" for item in list_of(response.get("output"))) else "stop"


def error_in(response: dict[str, Any] | None) -> str | None:
    """The message of a reply that came with a good status, and says that it failed."""
    response = response or {}
    error = fields_of(response.get("error"))
    if response.get("status") not in ("failed", "cancelled") and not error:
        return None
    return str(error.get("message") or error.get("code") or f"the response {response.get('status')}")


def category_of(status: int, kind: str | None = None) -> str:
    """What kind of error a status is; a failure kind of the transport says it better."""
    if kind in ("transport_unreachable", "transport_peer_drop"):
        return "connection"
    if kind == "transport_timeout" or status in (408, 504):
        return "timeout"
    by_status = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit", 499: "cancelled"}
    return by_status.get(status) or ("upstream_error" if status >= 500 else "client_error")


def _reason(value: Any) -> str | None:
    return _FINISH.get(value, value) if isinstance(value, str) else None
