"""Servers of all kinds in this process, called with or without a network between."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.client import CallError, Peer, Reply
from gym.config.schema import BASE_CONFIGS, ServerConfig
from gym.runtime.listen import answering, open_socket, url_of
from gym.servers.auth import Credentials
from gym.servers.base import Server
from gym.servers.context import PeerInfo, ServerContext
from gym.transports import HTTPTransport, InProcessTransport
from tests.unit.servers.endpoint import Endpoint, serving

EPISODE = {"rollout_id": "r1", "attempt": 0}
TASK = {"taskset": "t", "task_id": "1"}


class Rig:
    """A run of its own: servers, credentials, and one transport among them."""

    def __init__(self, folder: Path, *, token: str | None = "run-token-0123456789", secret: str = "secret") -> None:
        self.credentials = Credentials(token, secret)
        self.transport = InProcessTransport()
        self.peers: dict[str, PeerInfo] = {}
        self.servers: dict[str, Server] = {}
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Rig":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self.transport.aclose()

    async def add(self, name: str, make: type[Server], config: ServerConfig | None = None, **fields: Any) -> Any:
        """Make a server, start it and let it be called as `name`."""
        url = f"http://{name}.in-process"
        self.peers[name] = PeerInfo(name, make.kind, name, url)
        context = ServerContext(name, "run", url, self.credentials, self.peers, self.transport, self._folder)
        server = make(config or BASE_CONFIGS[make.kind](**fields), context)
        await self._stack.enter_async_context(server.running())
        self.servers[name] = server
        self.transport.add(f"{name}.in-process", server.app())
        return server

    def peer(self, name: str, **headers: str) -> Peer:
        """A client with the run's token, or with these headers."""
        return Peer(name, self.peers[name].url, self.transport, headers=headers or self.credentials.headers())

    async def serve(self, name: str) -> str:
        """Answer for a server on a real socket too; returns its URL."""
        listener = open_socket("127.0.0.1", 0, name)
        await self._stack.enter_async_context(answering(self.servers[name].app(), listener))
        return url_of(listener)

    async def call(
        self, name: str, route: str, body: Any = None, *, cookies: dict[str, str] | None = None, method: str = "", **headers: str
    ) -> Reply:
        """POST (GET without a body, unless `method` is given) once, and return whatever came back, errors included."""
        sent = {**({} if headers else self.credentials.headers()), **headers}
        if cookies:
            sent["cookie"] = "; ".join(f"{key}={value}" for key, value in cookies.items())
        payload = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        return await self.transport.send(method or ("GET" if body is None else "POST"), self.peers[name].url + route, sent, payload)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """An empty run."""
    async with Rig(tmp_path) as made:
        yield made


@pytest.fixture
async def http_transport() -> AsyncIterator[HTTPTransport]:
    """The transport over HTTP."""
    transport = HTTPTransport()
    yield transport
    await transport.aclose()


def seed_body(session_id: str = "s1", **task_data: Any) -> dict[str, Any]:
    """A typed seed."""
    return {"resources_session_id": session_id, "episode_id": EPISODE, "task_id": TASK, "task_data": task_data}


def agent_body(session_id: str = "a1", **fields: Any) -> dict[str, Any]:
    """The body that opens an agent session."""
    return {"agent_session_id": session_id, "episode_id": EPISODE, "task_id": TASK, **fields}


VERIFY = {"responses_create_params": {"input": "q"}, "response": {"id": "r", "output": []}}


async def refused(awaitable: Any) -> CallError:
    """The CallError that a call ends with."""
    with pytest.raises(CallError) as caught:
        await awaitable
    return caught.value


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path) -> MakeRig:
    """Another run, with the given `token` and `secret`."""
    return lambda **fields: Rig(tmp_path, **fields)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """An upstream that answers what it is told."""
    async with serving() as made:
        yield made
