"""Listening sockets, and the web server that answers on one.

Sockets are opened by the process that starts the run, before anything else: a port that is taken
is an error before there is anything to undo, and no port is lost between choosing and binding.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from gym.config.errors import UserError

_BACKLOG = 4096
_KEEP_ALIVE_SECONDS = 75
"""Longer than our clients keep a connection, so that no request meets a connection that is just being closed."""


def open_socket(host: str, port: int, instance: str) -> socket.socket:
    """Listen on `host:port` (port 0: any free one). Raises UserError if that is not possible."""
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        where = f"{host}:{port}" if port else host
        advice = "choose another port, or 0 for any free one" if port else "set 'default_host', or the instance's 'host', to an address of this machine"
        raise UserError(f"{instance}: cannot listen on {where}: {error.strerror or error} — {advice}") from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """The base URL that the socket answers at."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """A web server that leaves signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def answering(app: Any, listener: socket.socket, *, grace_seconds: float = 1.0) -> AsyncIterator[None]:
    """Answer on `listener` with `app`. At the end requests get `grace_seconds` to finish, then they are cancelled."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        server_header=False,
        date_header=False,
    )
    server = _Uvicorn(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.002)
        if task.done():
            task.result()
        yield
    finally:
        server.should_exit = True
        await asyncio.wait((task,), timeout=grace_seconds + 5)
        task.cancel()
