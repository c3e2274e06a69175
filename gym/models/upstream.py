"""An OpenAI-compatible endpoint that a model server asks: retries, Retry-After, errors kept typed.

One bounded policy: what may pass (408, 409 of a busy engine, 425, 429, 5xx, a broken connection) is
tried again, honouring Retry-After; any other 4xx is the answer, and so is a time-out, which was
long enough. Refused credentials get a kind of their own, since no other request will fare better. A
streamed answer is passed on byte by byte and is never retried once its headers are here. A slot of
`max_concurrency` is held until the whole answer was read.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gym.protocol.errors import ContractError, redacted
from gym.protocol.failures import retryable_status

if TYPE_CHECKING:
    import aiohttp

Result = TypeVar("Result")

_CAP_SECONDS = 60.0


@dataclass(frozen=True)
class Streamed:
    """The head of a streamed answer, and its bytes as they arrive."""

    status: int
    content_type: str
    chunks: AsyncIterator[bytes]


@dataclass
class Upstream:
    """One endpoint. Times in seconds; `name` is the server's, for messages and kinds."""

    name: str
    base_url: str
    api_key: str
    timeout: float
    max_retries: int
    max_concurrency: int | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    base_delay: float = 0.5

    def __post_init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots: contextlib.AbstractAsyncContextManager[Any]
        self._slots = asyncio.Semaphore(self.max_concurrency) if self.max_concurrency else contextlib.nullcontext()

    async def start(self) -> None:
        """Open the connection pool."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self.timeout, sock_connect=10),
            headers={"authorization": f"Bearer {self.api_key}", "content-type": "application/json", **self.extra_headers},
        )

    async def aclose(self) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    async def post(self, path: str, body: bytes) -> bytes:
        """The whole body of a good answer. Raises ContractError with the endpoint's status, or 502/504 if there was none."""

        async def whole() -> bytes:
            async with self._slots, self._answer(path, body) as response:
                return await response.read()

        return await self._retried(whole)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, body: bytes) -> AsyncGenerator["Streamed"]:
        """An answer that is read as it comes. Errors before its headers are here are raised as by `post`."""
        async with contextlib.AsyncExitStack() as stack:

            async def begin() -> "aiohttp.ClientResponse":
                async with contextlib.AsyncExitStack() as attempt:
                    await attempt.enter_async_context(self._slots)
                    answered = await attempt.enter_async_context(self._answer(path, body))
                    stack.push_async_exit(attempt.pop_all())
                return answered

            response = await self._retried(begin)
            content_type = response.headers.get("content-type", "text/event-stream")
            yield Streamed(response.status, content_type, response.content.iter_any())

    async def get(self, path: str) -> bytes:
        """GET, once."""
        async with self._answer(path, None) as response:
            return await response.read()

    async def _retried(self, send: Callable[[], Awaitable[Result]]) -> Result:
        """What `send` returns, tried as often as the policy allows."""
        attempt = 0
        while True:
            try:
                return await send()
            except ContractError as error:
                if attempt >= self.max_retries or error.terminal or error.kind == "transport_timeout":
                    raise
                wait = min(_CAP_SECONDS, self.base_delay * 2**attempt) * (0.5 + random.random() / 2)
                wait = max(wait, min(error.retry_after or 0.0, _CAP_SECONDS))
            attempt += 1
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _answer(self, path: str, body: bytes | None) -> AsyncGenerator["aiohttp.ClientResponse"]:
        """The answer to a POST of `body`, or to a GET without one, if its status is good.

        Raises ContractError, also for an answer that breaks off while it is read.
        """
        import aiohttp

        assert self._session is not None
        url = self.base_url.rstrip("/") + path
        try:
            async with self._session.request("GET" if body is None else "POST", url, data=body) as response:
                if response.status >= 400:
                    raise await self._refused(response)
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise self._unreachable(f"cannot reach {self.base_url}", "transport_unreachable", error) from error
        except TimeoutError as error:
            reason = f"{self.name}: {self.base_url} gave no answer within {self.timeout:g} s"
            raise ContractError(504, reason, kind="transport_timeout", terminal=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(f"the connection to {self.base_url} broke", "transport_peer_drop", error) from error

    async def _refused(self, response: "aiohttp.ClientResponse") -> ContractError:
        text = redacted((await response.content.read(2000)).decode(errors="replace"))
        kind = f"{self.name}:credentials_refused" if response.status in (401, 403) else "agent_request_failed"
        return ContractError(
            response.status,
            f"{self.name}: {self.base_url} answered {response.status}: {text[:500]}",
            kind=kind,
            terminal=not (retryable_status(response.status) or response.status == 409),
            retry_after=_seconds(response.headers.get("retry-after")),
        )

    def _unreachable(self, what: str, kind: str, error: Exception) -> ContractError:
        return ContractError(502, redacted(f"{self.name}: {what}: {str(error) or type(error).__name__}"), kind=kind, terminal=False)


def _seconds(value: Any) -> float | None:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None
