"""Replies that are lost, requests that come twice, callers that leave: every session is still closed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gym.client import CallError
from gym.config import load
from gym.runtime.launch import launch
from gym.runtime.prepare import Running
from tests.integration.conftest import CONFIG, ROOTS, GymRuns, run_body
from tests.integration.lossy_proxy import LossyProxy, lossy_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "token-of-both-runs-0123456789"

FRONT = """
auth: {{token_file: {token_file}}}
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
box:
  resources_servers:
    faulty: {{events: {events}, url: "{box}", headers: {{Authorization: "Bearer ${{oc.env:GYM_TEST_TOKEN}}"}}}}
agent:
  responses_api_agents:
    faulty_agent: {{events: {events}, url: "{agent}", headers: {{Authorization: "Bearer ${{oc.env:GYM_TEST_TOKEN}}"}}}}
"""


class Bench:
    """Two runs: the resources and agent servers, and an environment server that reaches them through proxies only."""

    def __init__(self, back: Running, front: Running, box: LossyProxy, agent: LossyProxy, runs: GymRuns) -> None:
        self.back, self.front, self.box, self.agent, self.runs = back, front, box, agent, runs
        self._number = 0

    def name(self) -> str:
        """A fresh rollout id; the proxies are well again."""
        self._number += 1
        for proxy in (self.box, self.agent):
            proxy.rules.clear()
            proxy.seen.clear()
        return f"rollout{self._number}"

    async def post(self, body: dict[str, Any], timeout: float = 20) -> dict[str, Any]:
        """Run an episode."""
        return (await self.front.peer("env").post("/run", body, timeout=timeout)).json()

    async def nothing_held(self) -> None:
        """Wait until both registries are empty, and the journal owes nothing."""
        async with asyncio.timeout(8):
            while True:
                said = [(await self.back.peer(name).get("/status", timeout=5)).json()["sessions"] for name in ("box", "agent")]
                if said == [0, 0] and not self.front.servers["env"]._journal.debts:  # type: ignore[attr-defined]
                    return
                await asyncio.sleep(0.02)

    def once_each(self, name: str) -> None:
        """What was held was released, once."""
        happened = self.runs.happened(name)
        assert happened.count("released") == happened.count("seed") == 1, happened
        assert happened.count("agent closed") == happened.count("agent opened"), happened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """Both runs; all servers in this process, but with real sockets between the two runs."""
    runs = GymRuns(tmp_path_factory.mktemp("lost"))
    token_file: Path = runs.write("token", TOKEN)
    block = CONFIG[CONFIG.index("env:\n") :]
    servers = CONFIG[CONFIG.index("box:\n") : CONFIG.index("env:\n")]
    back_text = servers.format(events=runs.events_file) + f"auth: {{token_file: {token_file}}}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYM_STATE_DIR", str(runs.state))
        patch.setenv("GYM_EXTRA_ROOTS", str(ROOTS))
        patch.setenv("GYM_TEST_TAG", runs.tag)
        patch.setenv("GYM_TEST_TOKEN", TOKEN)
        async with (
            launch(load([runs.write("back.yaml", back_text)], []).plan, "process") as back,
            lossy_proxy(lambda: back.peers["box"].url) as box,
            lossy_proxy(lambda: back.peers["agent"].url) as agent,
        ):
            text = (FRONT + block).format(token_file=token_file, events=runs.events_file, box=box.url, agent=agent.url)
            async with launch(load([runs.write("front.yaml", text)], []).plan, "colocated") as front:
                yield Bench(back, front, box, agent, runs)
        runs.check_nothing_left()


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("box", "/seed_session"),
        ("agent", "/v1/agent_sessions"),
        ("agent", "/v1/agent_sessions/close"),
        ("box", "/verify"),
        ("box", "/close_session"),
    ],
)
async def test_one_lost_reply_costs_nothing(bench: Bench, server: str, path: str) -> None:
    name = bench.name()
    proxy: LossyProxy = getattr(bench, server)
    proxy.rule(path, "lose_reply")
    reply = await bench.post(run_body(name, reward=0.5))
    assert reply["result"]["reward"] == 0.5
    assert proxy.seen.count(path) == 2
    await bench.nothing_held()
    bench.once_each(name)
    assert bench.runs.happened(name).count("verify") == 1


@pytest.mark.parametrize(("server", "path", "stage"), [("box", "/seed_session", "seed"), ("agent", "/v1/agent_sessions", "agent")])
async def test_a_reply_that_is_lost_each_time_leaves_nothing_open(bench: Bench, server: str, path: str, stage: str) -> None:
    name = bench.name()
    getattr(bench, server).rule(path, "lose_reply", 100)
    failure = (await bench.post(run_body(name)))["failure"]
    assert (failure["stage"], failure["failure_kind"], failure["terminal"]) == (stage, "transport_peer_drop", False)
    await bench.nothing_held()
    bench.once_each(name)
    assert "verify" not in bench.runs.happened(name)


async def test_a_lost_activation_is_not_sent_again(bench: Bench) -> None:
    name = bench.name()
    path = f"/ng-rollout/{name}/v1/responses"
    bench.agent.rule(path, "lose_reply")
    failure = (await bench.post(run_body(name)))["failure"]
    assert (failure["stage"], failure["failure_kind"]) == ("agent", "transport_peer_drop")
    assert bench.agent.seen.count(path) == 1
    assert failure["partial_response"]["id"] == "resp_agent"
    await bench.nothing_held()
    bench.once_each(name)


async def test_closes_whose_replies_are_always_lost_keep_the_verdict(bench: Bench) -> None:
    name = bench.name()
    bench.box.rule("/close_session", "lose_reply", 100)
    reply = await bench.post(run_body(name, reward=0.5))
    assert reply["result"]["reward"] == 0.5
    bench.once_each(name)
    # The session is closed, but nobody knows: the debt stays, and is paid when the way is open again.
    env: Any = bench.front.servers["env"]
    assert len(env._journal.debts) == 1
    bench.box.rules.clear()
    for debt in env._journal.debts:
        await env._pay(debt)
    await bench.nothing_held()


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("box", "/seed_session"),
        ("agent", "/v1/agent_sessions"),
        ("agent", "/v1/agent_sessions/close"),
        ("box", "/verify"),
        ("box", "/close_session"),
    ],
)
async def test_a_request_that_comes_twice_acts_once(bench: Bench, server: str, path: str) -> None:
    name = bench.name()
    getattr(bench, server).rule(path, "twice")
    reply = await bench.post(run_body(name, reward=0.5))
    assert reply["result"]["reward"] == 0.5
    await bench.nothing_held()
    bench.once_each(name)
    assert bench.runs.happened(name).count("verify") == 1


async def test_an_activation_that_comes_twice_runs_once(bench: Bench) -> None:
    name = bench.name()
    bench.agent.rule(f"/ng-rollout/{name}/v1/responses", "twice")
    assert (await bench.post(run_body(name, metadata={"seconds": "0.1"})))["result"]["reward"] == 1.0
    assert bench.runs.happened(name).count("agent acts") == 1


async def test_a_caller_that_leaves_during_a_slow_seed(bench: Bench) -> None:
    name = bench.name()
    with pytest.raises(CallError):
        await bench.post(run_body(name, seed_seconds=3), timeout=0.5)
    await bench.nothing_held()
    assert bench.runs.happened(name) == ["seed", "released"]


async def test_a_close_that_overtakes_its_seed_fences_it(bench: Bench) -> None:
    name = bench.name()
    body = {"resources_session_id": f"session-{name}", "episode_id": {"rollout_id": name, "attempt": 0}}
    box = bench.back.peer("box")
    assert (await box.post("/close_session", body, timeout=5)).json() == {"resources_session_id": f"session-{name}"}
    with pytest.raises(CallError) as caught:
        await box.post("/seed_session", {**body, "task_id": {"taskset": "t", "task_id": "1"}, "task_data": {}}, timeout=5)
    assert caught.value.status == 409
    assert bench.runs.happened(name) == []


async def test_our_own_token_is_not_sent_to_servers_that_run_elsewhere(bench: Bench) -> None:
    """Here both runs share one by choice; without `headers` nothing would be sent."""
    info = bench.front.peers["box"]
    assert info.remote
    assert info.call_headers(bench.front.credentials) == {"authorization": f"Bearer {TOKEN}"}
    assert type(info)("x", info.kind, "x", info.url, {}, remote=True).call_headers(bench.front.credentials) == {}
