"""A recorded call as an answer: whole or streamed as it was, and broken where it was broken."""

from functools import partial
from typing import Any

from gym.models.calls import ModelCall
from gym.models.capture.facts import finish_reason
from gym.models.dialects.errors import error_events
from gym.models.dialects.fields import Fields, fields_of
from gym.models.dialects.whole import stream_of, wants_usage
from gym.models.sse import SSEEvent
from gym.protocol.errors import ContractError
from gym.servers.event_stream import EventStream
from gym.servers.http import Answer, Send, Stream

_ENDINGS = {"responses": 1, "chat_completions": 1, "messages": 2}
"""How many of the last events say that a reply has ended."""


def answer_of(call: ModelCall) -> Any:
    """What a handler returns to answer as was recorded. Raises ContractError for an error that was recorded."""
    status, reply = call.status or 200, call.response
    if status >= 400:
        error = fields_of(fields_of(reply).get("error"))
        if "message" not in error or "type" not in error:
            return Answer(reply, status)
        code = error.get("code") or fields_of(error.get("details")).get("error_code")
        kind, terminal = str(error["type"]), error.get("terminal")
        raise ContractError(status, str(error["message"]), kind=kind, terminal=terminal, code=code, param=error.get("param"))
    if call.streamed:
        return Stream(partial(_write_events, call))
    return Answer(reply, status) if call.complete else Stream(_break_off)


async def _write_events(call: ModelCall, send: Send) -> int:
    """Send the reply as events. One that did not come to its end has none here: an error was reported, or its connection broke."""
    out, reply = EventStream(send), call.response or {}
    events = list(stream_of(call.dialect, reply, include_usage=wants_usage(call.request))) if reply else []
    if _ended(call, reply):
        await out.events(events)
    else:
        events = events[: -_ENDINGS[call.dialect]]
        await out.events([*events, *_error_events(call, len(events))])
        if not call.complete:
            raise _broken_off()
    await out.end()
    return 200


def _ended(call: ModelCall, reply: Fields) -> bool:
    return call.error_category is None or finish_reason(call.dialect, reply) is not None or reply.get("status") in ("failed", "cancelled")


def _error_events(call: ModelCall, number: int) -> list[SSEEvent]:
    return error_events(call.dialect, 500, call.error or "", "server_error", sequence_number=number) if call.complete else []


async def _break_off(send: Send) -> int:
    """Begin a reply that is not streamed, and break its connection; how far it came was not recorded."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": True})
    raise _broken_off()


def _broken_off() -> ContractError:
    return ContractError(502, "the recorded reply broke off here", kind="transport_peer_drop", terminal=False)
