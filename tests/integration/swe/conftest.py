"""A SWE server in this process, on a real Docker engine, spoken to by its routes.

Its profile is a small one of ours that reads what `pytest -rA` prints, so that these tests need no
`swebench` package; that profile is tested in the environment of its own server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gym.client import Peer
from gym.protocol import routes
from gym.protocol.access import SandboxAccess
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.servers import ServerContext
from gym.servers.auth import Credentials
from gym.swe.config import SweConfig
from gym.swe.server import SweServer
from gym.transports import InProcessTransport
from tests.integration.roots.resources_servers.calc_swe.profile import PytestProfile

BLOCK = {"docker": {"create": {"network": "none", "pull": "never"}}}
EPISODE = {"rollout_id": "r1", "attempt": 0}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0.0,
    "model": "m",
    "output": [],
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "status": "completed",
}


class PytestSweServer(SweServer):
    profile = PytestProfile()


class Rig:
    """One server and its client."""

    def __init__(self, server: SweServer, client: Peer, provider: Provider, row: dict[str, Any]) -> None:
        self.server, self.client, self.provider, self.row = server, client, provider, row
        self.cookies: dict[str, str] = {}
        self.box: BorrowedSandbox | None = None

    def seed_body(self, session: str, **changes: Any) -> dict[str, Any]:
        row = self.row | changes
        task_id = {"taskset": "t", "task_id": changes.get("task_id", self.row["instance_id"])}
        return {"resources_session_id": session, "episode_id": EPISODE, "task_id": task_id, "task_data": row}

    async def seed(self, session: str = "s1", **changes: Any) -> BorrowedSandbox:
        reply = await self.client.post(routes.SEED_SESSION, self.seed_body(session, **changes), timeout=60)
        self.row |= changes
        self.cookies = dict(reply.cookies)
        self.access: dict[str, Any] = reply.json()["sandbox_access"]
        access = SandboxAccess.model_validate(self.access)
        self.box = await BorrowedSandbox.connect(access, {"sandbox": self.provider})
        return self.box

    async def work(self, command: str, stdin: bytes | None = None) -> str:
        """Do something as the agent would."""
        assert self.box is not None
        done = await self.box.exec(command, stdin=stdin)
        assert done.ok, done.stdout + done.stderr
        return done.stdout

    async def solve(self) -> None:
        await self.work("git apply -", self.row["patch"].encode())

    async def verify(self, **changes: Any) -> dict[str, Any]:
        body = {**self.row, "responses_create_params": {"input": []}, "response": RESPONSE} | changes
        return (await self.client.post(routes.VERIFY, body, timeout=120, cookies=self.cookies)).json()

    async def close(self, session: str = "s1") -> None:
        await self.client.post(routes.CLOSE_SESSION, {"resources_session_id": session, "episode_id": EPISODE}, timeout=60)

    async def roles(self) -> list[str]:
        """The roles of the sandboxes that there are."""
        return [box.labels["nemo-gym.role"] for box in await self.provider.find(run_id=self.server.context.run_id)]

    async def id_of(self, role: str, seconds: float = 20) -> str:
        """The sandbox with this role, once there is one."""
        async with asyncio.timeout(seconds):
            while True:
                for box in await self.provider.find(run_id=self.server.context.run_id):
                    if box.labels["nemo-gym.role"] == role:
                        return box.sandbox_id
                await asyncio.sleep(0.05)


@pytest.fixture
async def make_rig(docker_run_id: str, calc_row: dict[str, Any], tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """A factory of rigs, with configuration fields as arguments. All are stopped, and must have left no sandbox."""
    provider = provider_from_block("sandbox", BLOCK)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(provider.aclose)

        async def make(
            instance: str = "swe",
            block: Mapping[str, Any] = BLOCK,
            kind: type[SweServer] = PytestSweServer,
            row: Mapping[str, Any] = calc_row,
            **config: Any,
        ) -> Rig:
            transport = InProcessTransport()
            credentials = Credentials("token", "secret")
            fields = {"setup_timeout": 60, "evaluation_timeout": 60, "sandbox_config": {"ttl_s": 300}} | config
            context = ServerContext(instance, docker_run_id, "http://swe", credentials, {}, transport, tmp_path, {"sandbox": block})
            server = kind(SweConfig(**fields), context)
            await stack.enter_async_context(server.running())
            transport.add("swe", server.app())
            return Rig(server, Peer("swe", "http://swe", transport, headers=credentials.headers()), provider, dict(row))

        yield make


@pytest.fixture
async def rig(make_rig: Callable[..., Any]) -> Rig:
    """A rig with the usual configuration."""
    return await make_rig()
