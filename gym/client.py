"""Calls from one server to another: a deadline, a replay policy per route, typed errors.

Invariant: a call ends as a `Reply` with a status below 400 or as a `CallError` that says whether
the request can have reached its target. A request is sent again only where its route is
idempotent by contract, or where it was certainly not sent. How bytes travel is the transport's
business (gym/transports.py): over HTTP, or straight into an ASGI application of this process.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from gym.protocol import routes
from gym.protocol.errors import redacted
from gym.protocol.failures import FAILURES, bounded_reason, retryable_status
from gym.protocol.rollouts import Delivery


@dataclass(slots=True)
class Reply:
    """An HTTP reply. `cookies` holds what the peer set with it; `headers` has lower-case names."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])

    def json(self) -> Any:
        """The body as JSON. Raises ValueError for anything else."""
        return orjson.loads(self.body)


class CallError(Exception):
    """A call that brought no usable reply.

    `status` is the peer's HTTP status, or None if there was no reply at all; `delivery` says
    whether the peer can have acted; `retry_after` is in seconds, where the peer gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        delivery: Delivery,
        status: int | None = None,
        retry_after: float | None = None,
        terminal: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = bounded_reason(message)
        self.kind = kind
        self.delivery: Delivery = delivery
        self.status = status
        self.retry_after = retry_after
        self._terminal = terminal

    @property
    def terminal(self) -> bool:
        """Whether trying again is pointless: what the peer said, else by the status alone."""
        if self._terminal is not None:
            return self._terminal
        return self.status is not None and not retryable_status(self.status)


class Transport(Protocol):
    """How one request travels. Raises `CallError` when no reply came back."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True)
class ReplayPolicy:
    """When a call is sent again, and how long is waited before: exponential, with full jitter."""

    attempts: int
    """Sends in all, the first included."""
    idempotent: bool
    """Whether a request that may have been delivered can be sent again."""
    base_seconds: float = 0.1
    cap_seconds: float = 5.0

    def delay(self, attempt: int, error: CallError) -> float | None:
        """Seconds to wait after the failed send number `attempt` (from 1), or None to give up."""
        if attempt >= self.attempts:
            return None
        if error.status is None:
            if error.delivery != "not_sent" and not self.idempotent:
                return None
        elif not (self.idempotent and error.status in (425, 429, 503)):
            return None
        wait = min(self.cap_seconds, self.base_seconds * 2 ** (attempt - 1)) * (0.5 + random.random() / 2)
        return max(wait, error.retry_after or 0.0)


IDEMPOTENT = ReplayPolicy(attempts=5, idempotent=True)
ONLY_UNSENT = ReplayPolicy(attempts=5, idempotent=False)

REPLAY: Mapping[str, ReplayPolicy] = {
    # The caller's id makes a repeat of these return what the first one did.
    routes.SEED_SESSION: IDEMPOTENT,
    routes.CLOSE_SESSION: IDEMPOTENT,
    routes.AGENT_SESSIONS: IDEMPOTENT,
    routes.CLOSE_AGENT_SESSION: IDEMPOTENT,
    routes.OPEN_CAPTURE: IDEMPOTENT,
    routes.CLOSE_CAPTURE: IDEMPOTENT,
    routes.VERIFY: IDEMPOTENT,
    routes.AGGREGATE_METRICS: IDEMPOTENT,
}
"""Route -> policy. Everything else (tools, activations, model calls, `/run`) may have side effects
or cost money, and is sent again only if it was certainly not sent."""


class Peer:
    """One server as another sees it."""

    def __init__(self, name: str, base_url: str, transport: Transport, *, headers: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.base_url = base_url.rstrip("/")
        self._transport = transport
        self._headers = {"content-type": "application/json", **(headers or {})}

    async def post(
        self,
        route: str,
        body: Any,
        *,
        timeout: float | None,
        prefix: str = "",
        cookies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """POST `body` (bytes are sent as they are, all else as JSON) to `prefix + route`.

        `timeout` bounds the call with all its repeats, in seconds; None leaves that to a scope
        around it. Raises CallError.
        """
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self._call("POST", route, prefix, payload, timeout, cookies, headers)

    async def get(self, route: str, *, timeout: float | None, prefix: str = "") -> Reply:
        """GET `route`; otherwise as `post`."""
        return await self._call("GET", route, prefix, b"", timeout, None, None)

    async def delete(self, route: str, *, timeout: float | None, prefix: str = "") -> Reply:
        """DELETE `route`; otherwise as `post`."""
        return await self._call("DELETE", route, prefix, b"", timeout, None, None)

    async def _call(
        self,
        method: str,
        route: str,
        prefix: str,
        payload: bytes,
        timeout: float | None,
        cookies: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        sent = {**self._headers, **headers} if headers else self._headers
        if cookies:
            sent = {**sent, "cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        url = f"{self.base_url}{prefix}{route}"
        policy = REPLAY.get(route, ONLY_UNSENT)
        if timeout is None:
            return await self._send(method, url, sent, payload, policy)
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await self._send(method, url, sent, payload, policy)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise CallError(
                f"{self.name} gave no answer to {method} {route} within {timeout:g} s",
                kind="transport_timeout",
                delivery="possibly_delivered",
            ) from error

    async def _send(self, method: str, url: str, headers: Mapping[str, str], payload: bytes, policy: ReplayPolicy) -> Reply:
        attempt = 1
        while True:
            try:
                reply = await self._transport.send(method, url, headers, payload)
                if reply.status < 400:
                    return reply
                raise error_of(self.name, method, url, reply)
            except CallError as error:
                wait = policy.delay(attempt, error)
                if wait is None:
                    raise
            await asyncio.sleep(wait)
            attempt += 1


def error_of(name: str, method: str, url: str, reply: Reply) -> CallError:
    """The typed error of a reply with a status of 400 or more; its text holds a bounded, redacted piece of the body."""
    kind, message, terminal = "", "", None
    try:
        error = reply.json()["error"]
        kind, message = str(error.get("type") or ""), str(error["message"])
        terminal = error.get("terminal") if isinstance(error.get("terminal"), bool) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        message = reply.body[:500].decode(errors="replace")
    if kind not in FAILURES and ":" not in kind:
        kind = "protocol_violation" if reply.status in (409, 410, 422) else "agent_request_failed"
    path = "/" + url.split("://", 1)[-1].partition("/")[2]
    return CallError(
        redacted(f"{name} answered {reply.status} to {method} {path}: {message}"),
        kind=kind,
        delivery="delivered",
        status=reply.status,
        retry_after=_retry_after(reply.headers.get("retry-after")),
        terminal=terminal,
    )


def _retry_after(value: str | None) -> float | None:
    try:
        return max(0.0, min(float(value), 600.0)) if value else None
    except ValueError:
        return None
