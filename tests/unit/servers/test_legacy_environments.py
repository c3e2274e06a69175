"""The two environment servers for what was before episodes: flat rows, and agents that run whole rollouts by themselves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from environment_servers.legacy_agent.app import LegacyAgentServer
from environment_servers.legacy_agent.config import Config as RelayConfig
from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyServer
from environment_servers.single_agent_turn_legacy.config import Config as FlatConfig
from gym.config.schema import AgentConfig, AgentRef, ResourcesServerConfig, ResourcesServerRef
from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.protocol.rollouts import Outcome
from gym.rollouts.outcomes import Ended, judge
from gym.rollouts.outcomes import Episode as Job
from gym.servers import AgentServer, AgentSession, ResourcesServer, ResourcesSession, Scored
from gym.servers.base import RouteSpec
from gym.servers.http import Access, Answer, Call
from tests.unit.servers.conftest import Rig

TASK = {"taskset": "t", "task_id": "i-1"}
ROW: dict[str, Any] = {"instance_id": "i-1", "expected": "the hidden truth", "responses_create_params": {"input": "go"}}
EPISODE = {"episode_id": {"rollout_id": "r1", "attempt": 0}, "task": {"task_id": TASK, "task_input": ROW}}


class Box(ResourcesServer[None]):
    """Writes down what it is told."""

    def __init__(self, config: ResourcesServerConfig, context: Any) -> None:
        super().__init__(config, context)
        self.seeded: list[dict[str, Any]] = []
        self.closed = 0

    async def seed(self, session: ResourcesSession[None], task_data: dict[str, Any]) -> None:
        self.seeded.append(task_data)
        session.state = None

        async def close() -> None:
            self.closed += 1

        session.on_release("nothing", close)

    async def verify(self, session: ResourcesSession[None] | None, request: BaseVerifyRequest) -> Scored:
        return Scored(0.5, {"own": request.task_data()["expected"]})


class Harness(AgentServer[None]):
    """Acts, and also runs whole rollouts as `run` says."""

    def __init__(self, config: AgentConfig, context: Any) -> None:
        super().__init__(config, context)
        self.told: list[Any] = []
        self.calls: list[Call] = []
        self.run: Any = {"reward": 1.0}
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    def route_specs(self) -> list[RouteSpec]:
        run = RouteSpec("/run", self._run, Access.CONTROL, under_rollout=True, leaves_with_client=True)
        return [*super().route_specs(), run, RouteSpec("/aggregate_metrics", self._metrics, Access.CONTROL)]

    async def open_session(self, session: AgentSession[None]) -> None:
        session.state = None
        self.told.append([grant.model_dump() for grant in session.tool_accesses])

    async def respond(self, session: AgentSession[None], params: ResponseCreateParams, prefix: str) -> Response:
        self.told.append(params.model_dump(exclude_unset=True))
        if params.input == "fail":
            raise ContractError(502, "it broke", kind="agent_run_error", terminal=False)
        return Response(id="r", status="completed", output=[assistant_message("done")])

    async def _run(self, call: Call) -> Any:
        self.calls.append(call)
        self.begun.set()
        if self.run == "hang":
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.cancelled.set()
        if isinstance(self.run, Exception):
            raise self.run
        return self.run

    async def _metrics(self, call: Call) -> Any:
        return {"agent_metrics": call.json()}


class Bench:
    """One of each."""

    def __init__(self, rig: Rig, box: Box, harness: Harness) -> None:
        self.rig, self.box, self.harness = rig, box, harness

    async def run(self, server: str, body: Any, path: str = "/run", **more: Any) -> tuple[int, Any]:
        reply = await self.rig.call(server, path, body, **more)
        return reply.status, orjson.loads(reply.body)

    async def outcome(self, answer: Any) -> Ended:
        """What the collector makes of the answer to an episode."""
        self.harness.run = answer
        reply = await self.rig.call("relay", "/run", EPISODE)
        return judge(reply.status, reply.body, Job("r1", 0, 0, 0, "relay", TASK))


@pytest.fixture
async def bench(rig: Rig) -> AsyncIterator[Bench]:
    box, harness = await rig.add("box", Box), await rig.add("harness", Harness)
    agent = AgentRef(type="responses_api_agents", name="harness")
    await rig.add(
        "flat",
        SingleAgentTurnLegacyServer,
        FlatConfig(resources_server=ResourcesServerRef(type="resources_servers", name="box"), agent_server=agent),
    )
    await rig.add("relay", LegacyAgentServer, RelayConfig(agent_server=agent, default_episode_timeout_seconds=20))
    await rig.add("hasty", LegacyAgentServer, RelayConfig(agent_server=agent, default_episode_timeout_seconds=0.2))
    yield Bench(rig, box, harness)
    assert box.closed == len(box.seeded), "a session of the task was left open"


async def test_a_flat_row_is_an_episode_whose_grader_fields_the_agent_never_sees(bench: Bench) -> None:
    status, row = await bench.run("flat", {**ROW, "_ng_rollout_id": "r1", "task_source": "box", "agent_ref": {"name": "harness"}})
    assert status == 200
    assert (row["reward"], row["own"], row["response"]["id"]) == (0.5, "the hidden truth", "r")
    assert row["agent_ref"] == {"type": "responses_api_agents", "name": "harness"}
    assert bench.box.seeded == [{"instance_id": "i-1", "expected": "the hidden truth"}]
    assert bench.harness.told == [[], {"input": "go"}]


async def test_a_flat_row_that_fails_says_so_and_has_no_reward(bench: Bench) -> None:
    _, row = await bench.run("flat", {**ROW, "responses_create_params": {"input": "fail"}})
    assert "reward" not in row
    assert (row["_ng_failure_class"], row["_ng_failure_kind"]) == ("environment_server_failed", "agent_run_error")
    assert (row["_ng_failure_stage"], row["_ng_failure_terminal"]) == ("agent", False)
    _, row = await bench.run("flat", {"instance_id": "i-1"})
    assert (row["_ng_failure_kind"], row["_ng_failure_stage"], row["_ng_failure_terminal"]) == ("protocol_violation", "admission", True)
    assert "responses_create_params" in row["_ng_failure_message"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([ROW], "must be an object"),
        ({**ROW, "task_source": "elsewhere"}, "task_source names 'elsewhere'"),
        ({**ROW, "agent_ref": {"name": "another"}}, "agent_ref names 'another', but flat runs 'harness'"),
        ({"responses_create_params": {"input": "go"}}, "no index to be named by"),
        ({**ROW, "_ng_rollout_id": "not/one"}, "must start with a letter or digit"),
        ({**ROW, "_ng_attempt_index": -1}, "greater than or equal to 0"),
    ],
)
async def test_a_flat_row_that_is_no_episode_of_this_server_is_refused(bench: Bench, row: Any, reason: str) -> None:
    status, said = await bench.run("flat", row)
    assert status == 422
    assert reason in said["error"]["message"]
    assert bench.box.seeded == []


async def test_an_episode_is_answered_as_by_single_agent_turn(bench: Bench) -> None:
    _, reply = await bench.run("flat", EPISODE)
    assert (reply["episode_id"], reply["task_id"]) == (EPISODE["episode_id"], TASK)
    assert reply["result"]["reward"] == 0.5


async def test_a_flat_row_is_relayed_as_it_came_and_so_is_the_reply(bench: Bench) -> None:
    bench.harness.run = Answer(b'{"reward":  0.25}', 207, cookies={"seen": "1"}, headers={"x-agent": "a"})
    sent = b'{"responses_create_params": {"input":  "go"}, "task": "mine"}'
    cookies = {"one": "1", "two": "2"}
    reply = await bench.rig.call("relay", "/ng-rollout/r7-a1/training-token-capture/run", sent, cookies=cookies)
    (call,) = bench.harness.calls
    assert (call.body, call.headers["cookie"]) == (sent, "one=1; two=2")
    assert (call.path, call.capture_key, call.token_capture) == ("/ng-rollout/r7-a1/training-token-capture/run", "r7-a1", True)
    assert (reply.status, reply.body, reply.cookies, reply.headers["x-agent"]) == (207, b'{"reward":  0.25}', {"seen": "1"}, "a")


async def test_an_agents_refusal_of_a_flat_row_keeps_its_status(bench: Bench) -> None:
    bench.harness.run = ContractError(429, "later", kind="agent_request_failed", retry_after=7)
    reply = await bench.rig.call("relay", "/run", ROW)
    assert (reply.status, reply.headers["retry-after"]) == (429, "7")
    assert orjson.loads(reply.body)["error"]["message"] == "later"


async def test_a_flat_row_needs_the_runs_token(bench: Bench) -> None:
    assert (await bench.rig.call("relay", "/run", ROW, authorization="Bearer of-somebody-else")).status == 401
    assert bench.harness.calls == []


async def test_an_episode_reaches_the_agent_as_its_flat_row(bench: Bench) -> None:
    ended = await bench.outcome({**ROW, "reward": 0.75})
    assert (ended.outcome, ended.reward) == (Outcome.MEASURED, 0.75)
    assert bench.harness.calls[0].json() == {**ROW, "_ng_rollout_id": "r1", "_ng_attempt_index": 0, "_ng_task_id": TASK}


BROKEN = ContractError(500, "the harness broke", kind="agent_run_error", terminal=False)


@pytest.mark.parametrize(
    ("answer", "kind", "terminal"),
    [
        (BROKEN, "agent_run_error", False),
        (RuntimeError("out of cheese"), "harness:internal_error", False),
        (ContractError(422, "no such row", kind="protocol_violation"), "protocol_violation", True),
        (Answer(b"<html>", 500), "agent_request_failed", False),
        (Answer(b"<html>"), "protocol_violation", True),
        ([1, 2], "protocol_violation", True),
        ({"error": "boom"}, "verifier_error", True),
        ({"reward": None}, "verifier_error", True),
        ({"reward": "1.0"}, "verifier_error", True),
        ({"reward": 0.0, "_ng_failure_class": "transient", "_ng_failure_kind": "session_lost"}, "session_lost", False),
        ({"reward": 0.0, "_ng_no_persist": True}, "kill_shaped", False),
    ],
)
async def test_an_agent_that_breaks_is_a_failure_and_never_a_zero(bench: Bench, answer: Any, kind: str, terminal: bool) -> None:
    ended = await bench.outcome(answer)
    assert (ended.outcome, ended.row, ended.reward) == (Outcome.FAILED, None, None)
    assert ended.failure is not None
    assert (ended.failure.kind, ended.failure.terminal) == (kind, terminal)


async def test_a_masked_row_stays_masked(bench: Bench) -> None:
    ended = await bench.outcome({**ROW, "reward": 0.0, "mask_sample": True, "failure_kind": "verifier_error"})
    assert (ended.outcome, ended.reward) == (Outcome.MASKED, None)


async def test_an_agent_that_is_down_is_a_failure_of_the_transport(rig: Rig) -> None:
    await rig.add("harness", Harness)
    rig.peers["gone"] = rig.peers["harness"].__class__("gone", "responses_api_agents", "gone", "http://127.0.0.1:9")
    await rig.add("relay", LegacyAgentServer, RelayConfig(agent_server=AgentRef(type="responses_api_agents", name="gone")))
    failure = orjson.loads((await rig.call("relay", "/run", EPISODE)).body)["failure"]
    assert (failure["failure_kind"], failure["terminal"], failure["stage"]) == ("transport_unreachable", False, "agent")
    reply = await rig.call("relay", "/run", ROW)
    assert (reply.status, orjson.loads(reply.body)["error"]["type"]) == (502, "transport_unreachable")


async def test_an_agent_that_hangs_is_left_in_time(bench: Bench) -> None:
    bench.harness.run = "hang"
    _, reply = await bench.run("hasty", EPISODE)
    assert (reply["failure"]["failure_kind"], reply["failure"]["stage"]) == ("cancelled", "agent")
    await asyncio.wait_for(bench.harness.cancelled.wait(), 5)
    bench.harness.cancelled.clear()
    status, said = await bench.run("hasty", ROW)
    assert (status, said["error"]["type"], said["error"]["terminal"]) == (504, "transport_timeout", False)
    await asyncio.wait_for(bench.harness.cancelled.wait(), 5)


@pytest.mark.parametrize("body", [ROW, EPISODE])
async def test_a_rollout_ends_with_its_caller_and_with_the_servers(bench: Bench, body: Any) -> None:
    bench.harness.run = "hang"
    relay: LegacyAgentServer = bench.rig.servers["relay"]  # type: ignore[assignment]
    running = asyncio.ensure_future(bench.rig.call("relay", "/run", body))
    await asyncio.wait_for(bench.harness.begun.wait(), 5)
    assert relay.running_count() == 1
    running.cancel()
    await asyncio.wait_for(bench.harness.cancelled.wait(), 5)
    await asyncio.gather(running, return_exceptions=True)
    assert relay.running_count() == 0
    bench.harness.begun.clear()
    again = asyncio.ensure_future(bench.rig.call("relay", "/run", body))
    await asyncio.wait_for(bench.harness.begun.wait(), 5)
    await relay.wind_up()
    reply = orjson.loads((await again).body)
    assert (reply["failure"]["failure_kind"] if "failure" in reply else reply["error"]["type"]) == "shutdown"


async def test_metrics_are_asked_of_whoever_ran_the_rollouts(bench: Bench) -> None:
    rows = {"verify_responses": [{"reward": 1.0}]}
    assert (await bench.run("relay", rows, "/aggregate_metrics"))[1] == {"agent_metrics": rows}
    assert (await bench.run("flat", rows, "/aggregate_metrics"))[1] == {"agent_metrics": {}}
