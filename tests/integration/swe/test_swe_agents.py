"""The two agents that check tasks, beside a SWE server in this process."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gym.client import CallError, Peer
from gym.protocol import routes
from gym.servers import ServerContext
from gym.transports import InProcessTransport
from responses_api_agents.noop_agent import app as noop
from responses_api_agents.noop_agent import config as noop_config
from responses_api_agents.oracle_agent import app as oracle
from responses_api_agents.oracle_agent import config as oracle_config

pytestmark = pytest.mark.docker

EPISODE = {"rollout_id": "r1", "attempt": 0}
SESSION = {"agent_session_id": "a1", "episode_id": EPISODE}


class AgentRig:
    """One agent and its client."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.cookies: dict[str, str] = {}

    async def open(self, rig: Any = None, *, grant: bool = True, sandbox: bool = True) -> None:
        grants = (
            [{"kind": "direct_http", "name": "swe", "required": True, "base_url": "http://swe", "cookies": rig.cookies}] if grant else []
        )
        body = {**SESSION, "task_id": {"taskset": "t", "task_id": "i"}, "tool_accesses": grants}
        if sandbox:
            body["sandbox_access"] = rig.access
        self.cookies = dict((await self.peer.post(routes.AGENT_SESSIONS, body, timeout=30)).cookies)

    async def act(self) -> dict[str, Any]:
        return (await self.peer.post(routes.RESPONSES, {"input": []}, timeout=60, cookies=self.cookies)).json()

    async def close(self) -> None:
        await self.peer.post(routes.CLOSE_AGENT_SESSION, SESSION, timeout=30)


@pytest.fixture
async def make_agent(tmp_path: Path) -> AsyncIterator[Any]:
    """A factory: the agent's class and configuration, beside a rig."""
    running: list[Any] = []

    async def make(kind: Any, config: Any, rig: Any) -> AgentRig:
        context = rig.server.context
        transport: InProcessTransport = context.transport
        own = ServerContext(
            "agent", context.run_id, "http://agent", context.credentials, {}, transport, tmp_path, context.sandbox_providers
        )
        server = kind(config, own)
        scope = server.running()
        await scope.__aenter__()
        running.append(scope)
        transport.add("agent", server.app())
        return AgentRig(Peer("agent", "http://agent", transport, headers=context.credentials.headers()))

    yield make
    for scope in reversed(running):
        await scope.__aexit__(None, None, None)


async def test_the_oracle_solves_and_cannot_stop_the_sandbox(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig(expose_gold_to=["oracle_agent"])
    agent = await make_agent(oracle.OracleAgent, oracle_config.Config(), rig)
    await rig.seed()
    await agent.open(rig)
    response = await agent.act()
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == "I applied the gold patch."
    await agent.close()
    assert await rig.work("ls /tmp; git diff --stat | tail -1") == " 1 file changed, 6 insertions(+), 6 deletions(-)\n"
    assert (await rig.verify())["reward"] == 1.0
    await rig.close()


async def test_the_oracle_says_what_it_lacks(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig()
    agent = await make_agent(oracle.OracleAgent, oracle_config.Config(), rig)
    await rig.seed()
    for options, reason in (({"sandbox": False}, "no sandbox"), ({"grant": False}, "no direct_http grant")):
        with pytest.raises(CallError, match=reason) as raised:
            await agent.open(rig, **options)
        assert raised.value.status == 422
    await agent.open(rig)
    with pytest.raises(CallError, match="shows its gold patches to nobody") as raised:
        await agent.act()
    assert raised.value.terminal, "the configuration will say the same next time"
    await agent.close()
    await rig.close()


async def test_a_gold_patch_that_does_not_apply_is_the_tasks_fault(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig(expose_gold_to=["oracle_agent"])
    agent = await make_agent(oracle.OracleAgent, oracle_config.Config(), rig)
    await rig.seed(patch=rig.row["patch"].replace("-    if tokens", "-    nothing like it"))
    await agent.open(rig)
    with pytest.raises(CallError, match="the gold patch does not apply") as raised:
        await agent.act()
    assert raised.value.terminal
    await agent.close()
    await rig.close()


async def test_a_sandbox_that_is_gone_is_no_fault_of_the_patch(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig(expose_gold_to=["oracle_agent"])
    agent = await make_agent(oracle.OracleAgent, oracle_config.Config(), rig)
    await rig.seed()
    await agent.open(rig)
    kill = ["docker", "kill", await rig.id_of("task")]
    await asyncio.to_thread(subprocess.run, kill, capture_output=True, check=True)
    with pytest.raises(CallError) as raised:
        await agent.act()
    assert not raised.value.terminal
    await agent.close()
    assert (await rig.verify())["failure_kind"] == "session_lost"
    await rig.close()


async def test_a_patch_that_fits_loosely_leaves_no_second_file(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig(expose_gold_to=["oracle_agent"])
    agent = await make_agent(oracle.OracleAgent, oracle_config.Config(), rig)
    await rig.seed(patch=rig.row["patch"].replace("def _sum", "def _total"))
    await agent.open(rig)
    await agent.act()
    await agent.close()
    assert await rig.work("git status --porcelain") == " M calc/evaluate.py\n?? build-stamp.txt\n"
    await rig.close()


async def test_the_noop_agent_does_nothing(make_rig: Any, make_agent: Any) -> None:
    rig = await make_rig()
    agent = await make_agent(noop.NoopAgent, noop_config.Config(sleep_seconds=0.1), rig)
    await rig.seed()
    await agent.open(rig, grant=False)
    assert (await agent.act())["output"][0]["content"][0]["text"] == "I did nothing."
    await agent.close()
    verdict = await rig.verify()
    assert (verdict["reward"], verdict["patch_source"], verdict["evaluation_completed"]) == (0.0, "none", True)
    await rig.close()
