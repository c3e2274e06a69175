"""Listening sockets, and the web server that answers on one.

Sockets are opened by the process that starts the run, before anything else: a port that is taken
is an error before there is anything to undo, and no port is lost between choosing and binding.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator
from typing import Any

import uvicorn

from gym.config.errors import UserError
from gym.protocol.errors import ContractError
from gym.servers.http import Answer, respond

_BACKLOG = 4096
_KEEP_ALIVE_SECONDS = 75
"""Longer than our clients keep a connection, so that no request meets a connection that is just being closed."""


def open_socket(host: str, port: int, instance: str, advice: str | None = None) -> socket.socket:
    """Listen on `host:port` (port 0: any free one). Raises UserError, with `advice`, if that is not possible."""
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        where = f"{host}:{port}" if port else host
        # The `strerror` of a bind repeats the address; numbers below zero are the resolver's.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        address = "set 'default_host', or the instance's 'host', to an address of this machine"
        what_to_do = advice or ("choose another port, or 0 for any free one" if port else address)
        raise UserError(f"{instance}: cannot listen on {where}: {reason} — {what_to_do}") from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """The base URL that the socket answers at."""
    return url_for(listener.getsockname()[0], listener)


def url_for(host: str, listener: socket.socket) -> str:
    """The base URL of the socket for those who call this machine `host`."""
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """A web server that leaves signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _tells_something(record: logging.LogRecord) -> bool:
    """Not what we have said ourselves, in words of our own."""
    return not str(record.msg).startswith(("Cancel %s running task", "ASGI callable returned without completing"))


class _Guarded:
    """An application whose requests, when the web server cancels them at its end, are still answered: with a 503."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begun = False

        async def sent(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except asyncio.CancelledError:
            # Nobody but the web server holds this task, so the cancellation ends here.
            if not begun:
                error = ContractError(503, f"{scope['path']} was cut short: the server is stopping", kind="shutdown")
                await respond(send, Answer(error.body(), error.status))


@contextlib.asynccontextmanager
async def answering(app: Any, listener: socket.socket, *, grace_seconds: float = 1.0) -> AsyncGenerator[None]:
    """Answer on `listener` with `app`. At the end requests get `grace_seconds` to finish, then they are cancelled."""
    config = uvicorn.Config(
        _Guarded(app),
        log_config=None,
        access_log=False,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    server = _Uvicorn(config)
    logging.getLogger("uvicorn.error").addFilter(_tells_something)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn offers no event for this
            await asyncio.sleep(0.002)
        if task.done():
            task.result()
        yield
    finally:
        server.should_exit = True
        await asyncio.wait((task,), timeout=grace_seconds + 5)
        task.cancel()
        cancelled = set(server.server_state.tasks)
        if cancelled:
            await asyncio.wait(cancelled, timeout=grace_seconds)  # they answer once more
