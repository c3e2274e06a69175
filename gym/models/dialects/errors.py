"""Errors as each dialect words them, so that the SDK of that dialect raises its own typed error.

OpenAI's SDK chooses its exception by the status and reads `message`, `type`, `code` and `param` from
`error`; Anthropic's chooses by the status too and reads `error.details.error_code`. In a stream that has
begun the status is gone: there an error is an event that makes either SDK raise.
"""

from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.sse import SSEEvent
from gym.protocol.errors import ContractError

CONTEXT_OVERFLOW = "context_length_exceeded"
"""The code of a request that is longer than the model's context."""

UNSUPPORTED = "unsupported_parameter"
"""The code of a request that asks for something that cannot be had here."""


class UnsupportedRequest(ContractError):
    """A request asks for what the endpoint behind us cannot do, or what we cannot read; `param` says where."""

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(422, f"{param}: {reason}", code=UNSUPPORTED, param=param)


_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(dialect: Dialect, status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """The JSON body of an error."""
    if dialect != "messages":
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    if code == CONTEXT_OVERFLOW and "prompt is too long" not in message:
        message = f"prompt is too long: {message}"  # what harnesses of this dialect look for to shorten their history
    error = {"type": kind, "message": message} | ({"details": {"error_code": code}} if code else {})
    return {"type": "error", "error": error}


def error_events(dialect: Dialect, status: int, message: str, code: str | None = None, *, sequence_number: int = 0) -> list[SSEEvent]:
    """The events that report an error in a stream that has begun; nothing may follow them but the stream's end."""
    body = error_body(dialect, status, message, code)
    if dialect == "responses":
        # The documented fields stand beside `error`, which is the key that makes the SDK raise.
        body |= {"type": "error", "code": code, "message": message, "param": None, "sequence_number": sequence_number}
    return [SSEEvent(None if dialect == "chat_completions" else "error", orjson.dumps(body).decode())]
