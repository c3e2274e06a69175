"""An OpenAI-compatible endpoint that a model server asks: retries, Retry-After, errors kept typed.

One bounded policy: what may pass (408, 409 of a busy engine, 425, 429, 5xx, a broken connection) is
tried again, honouring Retry-After; any other 4xx is the answer. Refused credentials get a kind of
their own, since no other request will fare better. A streamed answer is passed on byte by byte and
is never retried once its first byte is out.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gym.protocol.errors import ContractError, redacted
from gym.protocol.failures import retryable_status
from gym.servers.http import Send, Stream

if TYPE_CHECKING:
    import aiohttp

_CAP_SECONDS = 60.0


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
        self._slots = asyncio.Semaphore(self.max_concurrency) if self.max_concurrency else None

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
        async with await self._request(path, body) as response:
            return await self._read(response)

    async def stream(self, path: str, body: bytes) -> Stream:
        """An answer that is passed on as it comes. Errors before its first byte are raised as by `post`."""
        response = await self._request(path, body)

        async def write(send: Send) -> int:
            headers = [(b"content-type", response.headers.get("content-type", "text/event-stream").encode()), (b"cache-control", b"no-store")]
            async with response:
                await send({"type": "http.response.start", "status": response.status, "headers": headers})
                async for chunk in response.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            return response.status

        return Stream(write)

    async def get(self, path: str) -> bytes:
        """GET, once."""
        import aiohttp

        assert self._session is not None
        try:
            async with self._session.get(self.base_url.rstrip("/") + path) as response:
                if response.status >= 400:
                    raise await self._refused(response)
                return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def _request(self, path: str, body: bytes) -> "aiohttp.ClientResponse":
        """A response whose status is good; the caller closes it."""
        attempt = 0
        while True:
            try:
                return await self._send(path, body)
            except ContractError as error:
                if attempt >= self.max_retries or error.terminal:
                    raise
                wait = min(_CAP_SECONDS, self.base_delay * 2**attempt) * (0.5 + random.random() / 2)
                wait = max(wait, min(error.retry_after or 0.0, _CAP_SECONDS))
            attempt += 1
            await asyncio.sleep(wait)

    async def _send(self, path: str, body: bytes) -> "aiohttp.ClientResponse":
        import aiohttp

        assert self._session is not None
        try:
            if self._slots is not None:
                async with self._slots:
                    response = await self._session.post(self.base_url.rstrip("/") + path, data=body)
            else:
                response = await self._session.post(self.base_url.rstrip("/") + path, data=body)
        except TimeoutError as error:
            reason = f"{self.name}: {self.base_url} gave no answer within {self.timeout:g} s"
            raise ContractError(504, reason, kind="transport_timeout", terminal=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error
        if response.status >= 400:
            async with response:
                raise await self._refused(response)
        return response

    async def _read(self, response: "aiohttp.ClientResponse") -> bytes:
        import aiohttp

        try:
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

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

    def _unreachable(self, error: Exception) -> ContractError:
        reason = f"{self.name}: cannot reach {self.base_url}: {error or type(error).__name__}"
        return ContractError(502, reason, kind="transport_unreachable", terminal=False)


def _seconds(value: Any) -> float | None:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None
