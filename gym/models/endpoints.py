"""The endpoints of one model: which of them is asked, and how often.

One bounded policy: a failure that may pass is tried again up to `max_retries` times, after an exponential
wait with jitter and never before Retry-After (of at most a minute). Calls of one rollout stay at one endpoint,
whose prefix cache knows them; one that cannot be reached is left for half a minute, and its rollouts
go to another meanwhile, without a wait. A streamed answer is never retried once its headers are here.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from gym.models.calls import CallNotes
from gym.models.upstream import Streamed, Upstream, UpstreamError
from gym.protocol.errors import ContractError

if TYPE_CHECKING:
    import aiohttp

Result = TypeVar("Result")

_CAP_SECONDS = 60.0
LEFT_SECONDS = 30.0
"""How long an endpoint that cannot be reached is left alone, where there are others."""
_DEAD = ("transport_unreachable", "transport_peer_drop")


class Endpoints:
    """All the endpoints of one model server, as one."""

    def __init__(self, upstreams: Sequence[Upstream], *, max_retries: int, base_delay: float = 0.5) -> None:
        self._upstreams = tuple(upstreams)
        self._max_retries = max_retries
        self._base_delay = base_delay
        self._left: dict[str, float] = {}
        """Base URL -> when it may be asked again."""
        self.limited = 0
        """How often an endpoint answered 429."""
        self._limited_until = 0.0

    @property
    def wait_seconds(self) -> float:
        """What is left of the longest Retry-After that came with a 429, in seconds."""
        return max(0.0, self._limited_until - time.monotonic())

    async def start(self) -> None:
        """Open the connection pools."""
        for upstream in self._upstreams:
            await upstream.start()

    async def aclose(self) -> None:
        """Close the connection pools."""
        for upstream in self._upstreams:
            await upstream.aclose()

    async def post(
        self, path: str, body: bytes, *, rollout: str | None = None, notes: CallNotes | None = None, at_root: bool = False
    ) -> bytes:
        """The whole body of a good answer to a POST below the base URL. Raises ContractError as `Upstream.answer` does.

        With `at_root` the path is below the base URL without its `/v1`, where engines have routes of their own.
        """

        async def whole(upstream: Upstream) -> bytes:
            async with upstream.answer(_join(upstream, path, at_root=at_root), body) as response:
                return await response.read()

        return await self._tried(whole, rollout, notes or CallNotes())

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, rollout: str | None = None, notes: CallNotes | None = None
    ) -> AsyncGenerator[Streamed]:
        """An answer that is read as it comes. Errors before its headers are here are raised as by `post`."""
        async with contextlib.AsyncExitStack() as stack:

            async def begin(upstream: Upstream) -> "aiohttp.ClientResponse":
                async with contextlib.AsyncExitStack() as attempt:
                    answered = await attempt.enter_async_context(upstream.answer(_join(upstream, path), body))
                    stack.push_async_exit(attempt.pop_all())
                return answered

            response = await self._tried(begin, rollout, notes or CallNotes())
            content_type = response.headers.get("content-type", "text/event-stream")
            yield Streamed(response.status, content_type, response.content.iter_any())

    async def get(self, path: str) -> bytes:
        """GET below the base URL, once."""
        upstream = self._pick(None)
        async with upstream.answer(_join(upstream, path), None) as response:
            return await response.read()

    async def _tried(self, send: Callable[[Upstream], Awaitable[Result]], rollout: str | None, notes: CallNotes) -> Result:
        """What `send` returns, tried as often as the policy allows."""
        while True:
            upstream = self._pick(rollout)
            notes.upstream, notes.upstream_status = upstream.base_url, None
            notes.upstream_attempts += 1
            try:
                result = await send(upstream)
            except ContractError as error:
                notes.upstream_status = error.status if isinstance(error, UpstreamError) else None
                if error.status == 429:
                    self.limited += 1
                    self._limited_until = max(self._limited_until, time.monotonic() + min(error.retry_after or 0.0, _CAP_SECONDS))
                if notes.upstream_attempts > self._max_retries or error.terminal or error.kind == "transport_timeout":
                    raise
                wait = self._wait(upstream, error, notes.upstream_attempts)
            else:
                notes.upstream_status = 200
                self._left.pop(upstream.base_url, None)
                return result
            await asyncio.sleep(wait)

    def _wait(self, upstream: Upstream, error: ContractError, attempts: int) -> float:
        """Seconds until the next try; none where another endpoint stands in for one that is dead."""
        if error.kind in _DEAD and len(self._upstreams) > 1:
            now = time.monotonic()
            self._left[upstream.base_url] = now + LEFT_SECONDS
            if any(self._left.get(other.base_url, 0) <= now for other in self._upstreams):
                return 0.0
        wait = min(_CAP_SECONDS, self._base_delay * 2 ** (attempts - 1)) * (0.5 + random.random() / 2)
        return max(wait, min(error.retry_after or 0.0, _CAP_SECONDS))

    def _pick(self, rollout: str | None) -> Upstream:
        """A rollout's own endpoint among those that live, by rendezvous hashing; without one, the least busy. If all seem dead, any."""
        if len(self._upstreams) == 1:
            return self._upstreams[0]
        now = time.monotonic()
        live = [upstream for upstream in self._upstreams if self._left.get(upstream.base_url, 0) <= now] or self._upstreams
        if rollout is None:
            return min(live, key=lambda upstream: upstream.in_flight)
        return max(live, key=lambda upstream: blake2b(f"{rollout}\n{upstream.base_url}".encode(), digest_size=8).digest())


def _join(upstream: Upstream, path: str, *, at_root: bool = False) -> str:
    base = upstream.base_url.rstrip("/")
    return (base.removesuffix("/v1") if at_root else base) + path
