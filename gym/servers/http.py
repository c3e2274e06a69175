"""From an ASGI request to a handler and back: authentication, JSON, errors, the access log.

Invariant: every request gets exactly one answer with a JSON body, an exception never escapes to
the web server, and what a user sees of an unexpected one is its type and message, never a
traceback (that goes to the log).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from gym.client import CallError
from gym.models.calls import CallNotes
from gym.protocol.errors import ContractError, redacted
from gym.protocol.routes import EPISODE_HEADER
from gym.servers.auth import Credentials
from gym.servers.waiting import first_done
from gym.transports import CALLER_CANCELS, Message

access_log = logging.getLogger("gym.access")
log = logging.getLogger("gym.servers")

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Model = TypeVar("Model", bound=BaseModel)

MAX_BODY = 256 * 2**20
"""Longest request body, in bytes."""


class Access(Enum):
    """Who may use a route."""

    OPEN = "open"
    """Anybody who can reach the socket: liveness, and routes that a signed cookie protects."""
    CONTROL = "control"
    """Our own processes, by the run's token."""
    ROLLOUT = "rollout"
    """Our own processes, or the rollout that the path names, by its own token."""


@dataclass(slots=True)
class Call:
    """One request as a handler sees it."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    capture_key: str | None = None
    token_capture: bool = False
    index: int | None = None
    """Which call of its rollout it is, from 0, where it is a recorded model call."""
    notes: CallNotes = field(default_factory=CallNotes)
    """Filled in by the handler of a model call, for the record."""
    _json: Any = None

    def json(self) -> Any:
        """The body as JSON, parsed once; an empty body is an empty object. Raises ContractError (422)."""
        if not self.body:
            return {}
        if self._json is not None:
            return self._json
        try:
            self._json = orjson.loads(self.body)
            return self._json
        except orjson.JSONDecodeError as error:
            raise ContractError(422, f"the body of {self.path} is not JSON: {error}") from error

    def parse(self, model: type[Model]) -> Model:
        """The body as `model`. Raises ContractError (422) that names each offending field."""
        return parse(model, self.json(), f"the body of {self.path}")

    def cookie(self, name: str) -> str | None:
        """The value of one cookie."""
        for part in self.headers.get("cookie", "").split(";"):
            key, separator, value = part.strip().partition("=")
            if separator and key == name:
                return value
        return None


@dataclass(slots=True)
class Answer:
    """A handler's answer when it is more than a JSON body."""

    body: Any
    status: int = 200
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Stream:
    """An answer that the handler writes itself, as it comes: `write(send)` sends start and body."""

    write: Callable[[Send], Awaitable[int]]
    """Returns the HTTP status that it sent."""


Handler = Callable[[Call], Awaitable[Any]]


def parse(model: type[Model], value: Any, what: str) -> Model:
    """`value` as `model`. Raises ContractError (422) with one clause per offending field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        clauses = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg'].lower()}" for e in error.errors(include_url=False)[:5])
        raise ContractError(422, f"{what} is not a valid {model.__name__}: {clauses}") from error


@dataclass(frozen=True)
class Endpoint:
    """A route's handler as an ASGI application.

    `under_rollout` offers it below `/ng-rollout/<capture key>[/training-token-capture]` too;
    `leaves_with_client` cancels it when the client goes away; with `own_task` it always runs in a task that is not the caller's.
    """

    path: str
    handler: Handler
    credentials: Credentials
    access: Access
    method: str = "POST"
    under_rollout: bool = False
    leaves_with_client: bool = False
    own_task: bool = False
    logged: bool = True
    broken: str = "environment_server_failed"
    """The failure kind of an unexpected exception."""
    instance: str = ""
    """Whose route it is, for the log."""
    data: bool = False
    """Also on the sockets that code in a sandbox can reach; one that is `under_rollout`, only there."""

    def for_sandboxes(self) -> "Endpoint":
        """The endpoint as it is on such a socket."""
        return replace(self, credentials=self.credentials.for_sandboxes())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        call: Call | None = None
        status = 0
        try:
            call = self._call(scope)
            self._authorize(call)  # before the body, which only those who may send one can have us hold
            call.body = await _read_body(receive, self.path, call.headers)
            answer = await self._with_client(self.handler(call), scope, receive)
            if isinstance(answer, Stream):
                status = await self._stream(answer, scope, receive, send)
            else:
                answer = answer if isinstance(answer, Answer) else Answer(answer)
                answer.body = to_json(answer.body)
        except Exception as error:
            refusal = refusal_of(error, self.path, self.broken)
            answer = Answer(refusal.body(), refusal.status, headers=retry_after(refusal))
        if isinstance(answer, Answer):
            status = answer.status
            await respond(send, answer)
        if self.logged and access_log.isEnabledFor(logging.INFO):
            episode = (call.capture_key or call.headers.get(EPISODE_HEADER)) if call is not None else None
            key = f" episode={episode[:100]}" if episode else ""
            took = (time.perf_counter() - started) * 1000
            access_log.info("%s %s %s %d %.1fms%s", self.instance, scope["method"], scope["path"], status, took, key)

    def _call(self, scope: Message) -> Call:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return Call(scope["path"], b"", headers, scope.get("capture_key"), scope.get("token_capture", False))

    def _authorize(self, call: Call) -> None:
        authorization = call.headers.get("authorization")
        if self.access is Access.OPEN:
            return
        if self.access is Access.ROLLOUT:
            # Anthropic's clients send their key so.
            key = call.headers.get("x-api-key")
            given = (authorization, None if key is None else f"Bearer {key}")
            allowed = any(self._allows_model_call(value, call.capture_key) for value in given)
        else:
            allowed = self.credentials.allows_control(authorization)
        if not allowed:
            raise ContractError(401, f"{self.path} needs {self.credentials.needed}")

    def _allows_model_call(self, authorization: str | None, capture_key: str | None) -> bool:
        if capture_key is None:
            return self.credentials.allows_control(authorization)
        return self.credentials.allows_rollout(authorization, capture_key)

    async def _stream(self, stream: Stream, scope: Message, receive: Receive, send: Send) -> int:
        """Have a stream written. One that breaks after its start is left unfinished, which its reader sees as a broken connection."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            return await self._with_client(stream.write(sent), scope, receive)
        except Exception as error:
            if not begun:
                raise
            log.warning("the streamed answer of %s broke off: %s", self.path, redacted(f"{type(error).__name__}: {error}"))
            return 499 if isinstance(error, ContractError) and error.status == 499 else 502

    async def _with_client(self, handling: Awaitable[Any], scope: Message, receive: Receive) -> Any:
        """What `handling` returns. Where the route leaves with its client, it is cancelled, and awaited, once the client is gone."""
        if not self.leaves_with_client or (not self.own_task and CALLER_CANCELS in scope.get("extensions", ())):
            return await handling
        work = asyncio.ensure_future(handling)
        work.add_done_callback(_seen)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await first_done(work, gone)
        finally:
            if not gone.done():
                gone.cancel()
            if not work.done():
                work.cancel()
                await first_done(work)
        if work.cancelled():
            if not gone.done() or gone.cancelled():
                raise ContractError(503, f"{self.path} was cancelled: the server is stopping", kind="shutdown", terminal=False)
            raise ContractError(499, f"the client of {self.path} went away", kind="cancelled", terminal=False)
        return work.result()


def _seen(work: "asyncio.Future[Any]") -> None:
    """Mark a failure as seen, for the case that we are cancelled and nobody is left to be told."""
    if not work.cancelled():
        work.exception()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: Receive, path: str, headers: Mapping[str, str]) -> bytes:
    announced = headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() and len(announced) < 20 else 0
    parts: list[bytes] = []
    received = 0
    while max(size, received) <= MAX_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ContractError(400, f"the client of {path} went away before its body was complete", terminal=False)
        body: bytes = message.get("body", b"")
        received += len(body)
        if not message.get("more_body") and received <= MAX_BODY:
            return b"".join((*parts, body)) if parts else body
        parts.append(body)
    raise ContractError(413, f"the body of {path} is longer than {MAX_BODY // 2**20} MiB")


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")


def to_json(value: Any) -> bytes:
    """`value` as JSON bytes; pydantic models without the fields that were never set."""
    return value if isinstance(value, bytes) else orjson.dumps(value, default=_default)


async def respond(send: Send, answer: Answer) -> None:
    """Send an answer."""
    body = to_json(answer.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax".encode()) for name, value in answer.cookies.items()]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refusal_of(error: Exception, path: str, broken: str) -> ContractError:
    """What a request is refused with when its handler raised `error`; an unexpected one is logged, and is of kind `broken`."""
    if isinstance(error, ContractError):
        return error
    if isinstance(error, CallError):
        return ContractError(_status_of(error), error.message, kind=error.kind, terminal=error.terminal, retry_after=error.retry_after)
    log.error("unexpected error in %s", path, exc_info=error)
    return ContractError(500, redacted(f"{type(error).__name__}: {error}"), kind=broken)


def retry_after(error: ContractError) -> dict[str, str]:
    """The header that says when to try again, if that is known."""
    return {"retry-after": f"{error.retry_after:g}"} if error.retry_after is not None else {}


def _status_of(error: CallError) -> int:
    """A peer's own refusal keeps its status; no reply at all is a bad gateway or a time-out."""
    if error.status is not None:
        return error.status
    return 504 if error.kind == "transport_timeout" else 502
