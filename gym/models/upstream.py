"""One endpoint that a model server asks: a single exchange, with its errors typed.

Whatever goes wrong is a ContractError. What may pass (408, 409 of a busy engine, 425, 429, 5xx, a broken
connection) is not terminal; any other 4xx is the answer, and so is a time-out, which was long enough.
Refused credentials get a kind of their own, since no other request will fare better. A slot of
`max_concurrency` is held until the whole answer was read. Trying again is the business of `Endpoints`.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import orjson

from gym.protocol.errors import ContractError, redacted
from gym.protocol.failures import retryable_status

if TYPE_CHECKING:
    import aiohttp

_ERROR_BYTES = 64 * 2**10
_SHOWN = 500


class UpstreamError(ContractError):
    """An endpoint's own refusal: `status` is the endpoint's, `code` and `param` what its answer gave as such."""


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
    max_concurrency: int | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots: contextlib.AbstractAsyncContextManager[Any]
        self._slots = asyncio.Semaphore(self.max_concurrency) if self.max_concurrency else contextlib.nullcontext()
        self.in_flight = 0
        """Requests that were sent, or wait for a slot."""

    async def start(self) -> None:
        """Open the connection pool."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self.timeout, sock_connect=10),
            headers={"authorization": f"Bearer {self.api_key}", "content-type": "application/json"}
            | {name.lower(): value for name, value in self.extra_headers.items()},
        )

    async def aclose(self) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def answer(self, url: str, body: bytes | None) -> AsyncGenerator["aiohttp.ClientResponse"]:
        """The answer to a POST of `body`, or to a GET without one, if its status is good.

        Raises ContractError with the endpoint's status, or 502 or 504 if there was none, also for an answer that breaks
        off while it is read.
        """
        import aiohttp

        assert self._session is not None
        self.in_flight += 1
        try:
            async with self._slots, self._session.request("GET" if body is None else "POST", url, data=body) as response:
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
        finally:
            self.in_flight -= 1

    async def _refused(self, response: "aiohttp.ClientResponse") -> UpstreamError:
        raw = await response.content.read(_ERROR_BYTES)
        kind = f"{self.name}:credentials_refused" if response.status in (401, 403) else "agent_request_failed"
        error = UpstreamError(
            response.status,
            f"{self.name}: {self.base_url} answered {response.status}: {redacted(raw.decode(errors='replace'))[:_SHOWN]}",
            kind=kind,
            terminal=not (retryable_status(response.status) or response.status == 409),
            retry_after=seconds_to_wait(response.headers.get("retry-after")),
        )
        try:
            said = orjson.loads(raw)["error"]
            error.code, error.param = (said.get(name) if isinstance(said.get(name), str) else None for name in ("code", "param"))
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # it answered in words of its own
        return error

    def _unreachable(self, what: str, kind: str, error: Exception) -> ContractError:
        return ContractError(502, redacted(f"{self.name}: {what}: {str(error) or type(error).__name__}"), kind=kind, terminal=False)


def seconds_to_wait(retry_after: str | None) -> float | None:
    """A `Retry-After` header in seconds; it may be a number or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
