"""A route of a model's dialect: the call is recorded, an error is told in the dialect's own form, and a stream is kept alive.

Invariant: under a rollout's prefix nothing of a reply's end is released before the record of it is written. Calls without a
prefix, such as a judge's, are answered alike and recorded nowhere.
"""

import asyncio
from typing import Any, cast

import orjson

from gym.models.calls import Dialect
from gym.models.capture.facts import category_of, error_in
from gym.models.capture.recorder import Recorder, Recording
from gym.models.dialects.errors import error_body, error_events
from gym.models.dialects.fields import fields_of
from gym.models.sse import SSEEvent
from gym.protocol.errors import ContractError
from gym.servers.http import Answer, Call, Handler, Send, Stream, refusal_of, retry_after, to_json
from gym.servers.outlets import Outlet


class DialectRoute:
    """A handler around a handler. `keep_alive` is in seconds."""

    def __init__(self, dialect: Dialect, handler: Handler, recorder: Recorder, broken: str, keep_alive: float | None) -> None:
        self._dialect: Dialect = dialect
        self._handler, self._recorder, self._broken, self._keep_alive = handler, recorder, broken, keep_alive

    async def __call__(self, call: Call) -> Answer | Stream:
        """Answer one request."""
        try:
            body = call.json()
            if not isinstance(body, dict):
                raise ContractError(422, f"the body of {call.path} must be an object")
            request = cast("dict[str, Any]", body)
            if request.get("stream"):
                return Stream(lambda send: self._streamed(call, request, send))
            recording = self._begin(call, request, streamed=False)
        except ContractError as error:
            return self._refused(error)
        answer = await self._asked(call, recording)
        if isinstance(answer, Stream):
            return Stream(lambda send: self._passed_on(call, answer, Outlet(send, self._dialect, recording), recording))
        return self._recorded(answer, recording)

    def _begin(self, call: Call, request: dict[str, Any], *, streamed: bool) -> Recording | None:
        if call.capture_key is None:
            return None
        recording = self._recorder.begin(
            call.capture_key, self._dialect, request, call.notes, streamed=streamed, token_capture=call.token_capture
        )
        call.index = recording.call.index
        return recording

    async def _asked(self, call: Call, recording: Recording | None) -> Answer | Stream:
        """What the handler answers; its error is an answer too, and on record."""
        try:
            answer = await self._handler(call)
            return answer if isinstance(answer, (Answer, Stream)) else Answer(answer)
        except asyncio.CancelledError:
            return self._refused(_cancelled(call, recording))
        except Exception as error:
            refusal = refusal_of(error, call.path, self._broken)
            answer = self._refused(refusal)
            if recording is not None:
                category = "exception" if refusal.kind == self._broken else category_of(refusal.status, refusal.kind)
                recording.end(refusal.status, _object(answer.body), category=category, error=refusal.message)
            return answer

    def _recorded(self, answer: Answer, recording: Recording | None) -> Answer:
        """The answer, once its end is on record."""
        answer.body = to_json(answer.body)
        if recording is None or recording.ended:
            return answer
        response = _object(answer.body)
        error = error_in(response)
        if answer.status >= 400:
            recording.end(answer.status, response, category=category_of(answer.status), error=error or "")
        elif response is None:
            piece = answer.body[:120].decode(errors="replace")
            recording.end(answer.status, None, category="upstream_error", error=f"the reply is no JSON object: {piece!r}")
        else:
            recording.end(answer.status, response, category="upstream_error" if error else None, error=error or "")
        return answer

    async def _streamed(self, call: Call, request: dict[str, Any], send: Send) -> int:
        """Answer a request that asks for a stream; returns the status."""
        try:
            recording = self._begin(call, request, streamed=True)
        except ContractError as error:
            return await Outlet(send, self._dialect, None).answer(self._refused(error), [])
        outlet = Outlet(send, self._dialect, recording)
        try:
            async with outlet.kept_alive(self._keep_alive):
                answer = await self._asked(call, recording)
                if isinstance(answer, Stream):
                    return await self._passed_on(call, answer, outlet, recording)
                return await outlet.answer(self._recorded(answer, recording), _events(self._dialect, answer))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or recording is None or not recording.whole:
                raise
            task.uncancel()  # clients that have the last event do not wait for the end of the stream
            return outlet.status

    async def _passed_on(self, call: Call, stream: Stream, outlet: Outlet, recording: Recording | None) -> int:
        """Have the handler write its stream. What breaks before it has begun is an answer, afterwards a broken connection."""
        try:
            return await stream.write(outlet.send)
        except asyncio.CancelledError:
            raise _cancelled(call, recording) from None
        except Exception as error:
            refusal = refusal_of(error, call.path, self._broken)
            answer = self._refused(refusal)
            if recording is not None:
                category = "stream_truncated" if outlet.begun else category_of(refusal.status, refusal.kind)
                category = "exception" if refusal.kind == self._broken else category
                status, reply = (outlet.status, recording.partial()) if outlet.begun else (refusal.status, _object(answer.body))
                recording.end(status, reply, complete=not outlet.begun, category=category, error=refusal.message)
            if outlet.begun:
                raise refusal from error
            return await outlet.answer(answer, _events(self._dialect, answer))
        finally:
            if recording is not None:
                error = "the stream was not sent to its end"
                recording.end(outlet.status, recording.partial(), complete=False, category="stream_truncated", error=error)

    def _refused(self, error: ContractError) -> Answer:
        """An error as the dialect's clients know it, with what our own look for; those that retry are told where it is pointless."""
        headers = retry_after(error)
        if error.terminal:
            headers["x-should-retry"] = "false"
        body = error_body(self._dialect, error.status, error.message, error.code, error.param)
        body["error"] |= {"type": error.kind, "terminal": error.terminal}
        return Answer(to_json(body), error.status, headers=headers)


def _cancelled(call: Call, recording: Recording | None) -> ContractError:
    """Put on record that a call was cancelled. Raises CancelledError, unless it was the close of the rollout that did it."""
    task = asyncio.current_task()
    if recording is not None and recording.cut_off and task is not None:
        task.uncancel()
        return ContractError(410, f"the rollout of {call.path} was closed", kind="session_lost", terminal=True)
    if recording is not None:
        error = "the client went away, or the server was stopped"
        recording.end(499, recording.partial(), complete=False, category="cancelled", error=error)
    raise asyncio.CancelledError


def _events(dialect: Dialect, answer: Answer) -> list[SSEEvent]:
    """What is no stream, in a stream that has begun: an error."""
    error = fields_of((_object(answer.body) or {}).get("error"))
    message = str(error.get("message") or f"the model answered {answer.status} with something that is no stream")
    return error_events(dialect, answer.status, message, error.get("code") or error.get("type"))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
