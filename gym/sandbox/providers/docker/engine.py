"""One engine's HTTP API: requests with a deadline, and errors that say what the engine said.

Invariant: every call ends within its deadline, and every failure is an `EngineError`. It knows
no containers; what is asked of the engine, and what an answer means, is the callers'.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import orjson

from gym.sandbox.output import BoundedOutput
from gym.sandbox.providers.docker.address import Address
from gym.sandbox.providers.docker.streams import Hijacked, open_hijacked
from gym.sandbox.spec import SandboxError

NEWEST_KNOWN = (1, 51)
"""We ask no newer version of the API than this."""

MAX_REPLY_BYTES = 64 * 1024 * 1024


class EngineError(SandboxError):
    """The engine answered with an error (`status` is HTTP's), or could not be asked (`status` is 0)."""

    def __init__(self, message: str, status: int = 0, kind: str = "provider_unavailable") -> None:
        super().__init__(message, kind)
        self.status = status

    @property
    def unreachable(self) -> bool:
        """Whether there was no answer at all."""
        return self.status == 0


def name_in_path(name: str) -> str:
    """`name` as one segment of a request path."""
    return quote(name, safe="")


class Engine:
    """Calls to the engine at one address, from the event loop that it is first used in."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._version: str | None = None
        self._info: dict[str, Any] | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        data: AsyncIterator[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        into: Callable[[bytes], None] | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """The body and headers of a good reply. A value in `params` that is not a string is sent as JSON.

        With `into` a good reply's body, of any length, goes there piece by piece, and the one returned is empty.
        """
        deadline = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(deadline):
                url = f"{self.address.base_url}{await self._prefix()}{path}"
                sent = _query(params)
                extra = dict(headers or {})
                if body is not None:
                    data = orjson.dumps(body)
                    extra["Content-Type"] = "application/json"
                async with self._open().request(method, url, params=sent, data=data, headers=extra) as reply:
                    if into is not None and reply.status < 400:
                        async for piece in reply.content.iter_any():
                            into(piece)
                        return b"", reply.headers
                    content = await _read(reply)
                    if reply.status >= 400:
                        raise EngineError(f"docker engine refused {method} {path}: {_said(content)}", reply.status)
                    return content, reply.headers
        except TimeoutError as error:
            raise EngineError(f"docker engine at {self.address.text} gave no answer to {method} {path} within {deadline:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def json(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> dict[str, Any]:
        """The JSON object of a good reply; an empty one for an empty reply."""
        content, _ = await self.request(method, path, params=params, body=body)
        return cast("dict[str, Any]", orjson.loads(content)) if content else {}

    async def hijack(self, path: str, body: Any, stdout: BoundedOutput, stderr: BoundedOutput) -> Hijacked:
        """Post `body`, and take over the connection as a two-way stream whose output goes to `stdout` and `stderr`."""
        prefix = await self._version_prefix()
        try:
            async with asyncio.timeout(self._timeout_s):
                status, stream, said = await open_hijacked(self.address, f"{prefix}{path}", orjson.dumps(body), stdout, stderr)
        except TimeoutError as error:
            raise EngineError(f"docker engine at {self.address.text} gave no answer to {path} within {self._timeout_s:g} s") from error
        except OSError as error:
            raise self._unreachable(error) from error
        if stream is None:
            raise EngineError(f"docker engine refused {path}: {_said(said)}", status)
        return stream

    @asynccontextmanager
    async def lines(self, path: str, params: Mapping[str, Any]) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The lines of a reply that has no end, as they come; the only call without a deadline. Entered once the engine has answered."""
        url = f"{self.address.base_url}{await self._version_prefix()}{path}"
        try:
            async with self._open().get(url, params=_query(params)) as reply:
                if reply.status >= 400:
                    raise EngineError(f"docker engine refused GET {path}: {_said(await _read(reply))}", reply.status)
                yield _lines(reply)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(error) from error

    async def info(self) -> dict[str, Any]:
        """What the engine says about its host: asked once, then remembered."""
        if self._info is None:
            self._info = await self.json("GET", "/info")
        return self._info

    async def aclose(self) -> None:
        """Close idle connections. The next call opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            at = self.address
            connector = (
                aiohttp.UnixConnector(at.socket_path, limit=0) if at.socket_path else aiohttp.TCPConnector(limit=0, ssl=at.tls or True)
            )
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=False)
        return self._session

    async def _version_prefix(self) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._prefix()
        except TimeoutError as error:
            raise EngineError(f"docker engine at {self.address.text} gave no answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def _prefix(self) -> str:
        if self._version is None:
            async with self._open().get(f"{self.address.base_url}/_ping") as reply:
                offered = reply.headers.get("Api-Version", "")
            try:
                major, minor = (int(part) for part in offered.split("."))
            except ValueError:
                raise EngineError(f"what answers at {self.address.text} is no Docker engine: it names no API version") from None
            self._version = ".".join(map(str, min((major, minor), NEWEST_KNOWN)))
        return f"/v{self._version}"

    def _unreachable(self, error: Exception) -> EngineError:
        why = f"{type(error).__name__}: {error}"
        return EngineError(f"no Docker engine answers at {self.address.text} ({why}): start one, or set DOCKER_HOST or the provider's host")


def _query(params: Mapping[str, Any] | None) -> dict[str, str]:
    return {k: v if isinstance(v, str) else orjson.dumps(v).decode() for k, v in (params or {}).items() if v is not None}


async def _lines(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    while line := await reply.content.readline():
        yield line


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > MAX_REPLY_BYTES:
            raise EngineError(f"docker engine's reply is longer than {MAX_REPLY_BYTES} bytes", reply.status)
    return bytes(content)


def _said(content: bytes) -> str:
    try:
        return str(orjson.loads(content)["message"])
    except (ValueError, LookupError, TypeError):
        return content[:500].decode(errors="replace") or "no reason given"
