"""An endpoint that misbehaves as it is told: what `openai_model` and `vllm_model` are tried with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from aiohttp import web

GOOD = {"id": "r", "object": "response", "output": [], "unknown": {"kept": 1}}


class Endpoint:
    """An upstream that answers what it is told; the last answer stays.

    An answer is a JSON value, `(status, text, headers)`, the name of a misdeed, or a list: a stream in these pieces of
    bytes, where "wait" waits for `go_on` and "abort" breaks the connection.
    """

    def __init__(self) -> None:
        self.answers: list[Any] = [GOOD]
        self.routes: dict[str, Any] = {}
        """Path -> the one answer of it, if it is not of `answers`."""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.in_flight = self.most = 0
        self.left = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else None
        self.requests.append((request.path, dict(request.headers), body))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if request.path in self.routes:
                answer = self.routes[request.path]
            else:
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return await self._answer(request, answer)
        except asyncio.CancelledError:
            self.left.set()
            raise
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, answer: Any) -> web.StreamResponse:
        if answer == "hang":
            await asyncio.sleep(60)
        if answer == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer == "stream":
            answer = [b"data: first\n\n", "wait", b"data: \xff\xfe last\n\n"]
        if answer == "short":
            return await self._pieces(request, {"content-length": "100"}, [b"data: first\n\n", "abort"])
        if isinstance(answer, list):
            return await self._pieces(request, {"content-type": "text/event-stream"}, cast(list[Any], answer))
        if answer == "slow":
            await asyncio.sleep(0.03)
            return web.json_response(GOOD)
        if isinstance(answer, tuple):
            status, text, headers = answer
            return web.Response(status=status, text=text, headers=headers)
        return web.json_response(answer)

    async def _pieces(self, request: web.Request, headers: dict[str, str], pieces: list[Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in pieces:
            if piece == "wait":
                await self.go_on.wait()
            elif piece == "abort":
                assert request.transport is not None
                request.transport.close()
                break
            else:
                await response.write(piece)
        return response


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Endpoint]:
    """One that is up until the context ends."""
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    made.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        await runner.cleanup()
