"""Agent sessions on the wire, and the tool loop of `simple_agent`."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.protocol.responses import Response, ResponseCreateParams
from gym.servers import AgentServer, AgentSession, ResourcesServer, ResourcesSession, tool
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_agents.simple_agent.config import Config as SimpleConfig
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config as ScriptedConfig
from tests.unit.servers.conftest import EPISODE, Rig, agent_body, seed_body

CLOSE = {"agent_session_id": "a1", "episode_id": EPISODE}


class Harness(AgentServer[list[str]]):
    """Runs once; waits where its input says so."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.runs = 0
        self.close_fails = False
        self.log: list[str] = []

    async def open_session(self, session: AgentSession[list[str]]) -> None:
        session.state = []

    async def respond(self, session: AgentSession[list[str]], params: ResponseCreateParams, prefix: str) -> Response:
        self.runs += 1
        if params.input == "fail":
            raise RuntimeError("the harness broke")
        try:
            await asyncio.sleep(60 if params.input == "hang" else 0.01)
        finally:
            self.log.append("stopped")
        return Response(id=f"run-{self.runs}", output=[])

    async def close_session(self, session: AgentSession[list[str]]) -> None:
        if self.close_fails:
            raise OSError("the harness does not stop")
        self.log.append("closed")
        session.observations = {"runs": self.runs}
        session.trajectory = {"steps": []}


@pytest.fixture
async def harness(rig: Rig) -> Harness:
    return await rig.add("agent", Harness)


async def opened(rig: Rig, **fields: Any) -> dict[str, str]:
    reply = await rig.call("agent", routes.AGENT_SESSIONS, agent_body(**fields))
    assert (reply.status, reply.json()) == (200, {"agent_session_id": "a1"}), reply.body
    return dict(reply.cookies)


async def act(rig: Rig, cookies: dict[str, str], body: Any, prefix: str = "") -> Any:
    return await rig.call("agent", prefix + routes.RESPONSES, body, cookies=cookies)


async def test_one_activation_joins_replays_and_refuses_another(rig: Rig, harness: Harness) -> None:
    cookies = await opened(rig)
    replies = await asyncio.gather(*(act(rig, cookies, {"input": "q"}, prefix) for prefix in ("", "/ng-rollout/r1")))
    replies.append(await act(rig, cookies, {"input": "q"}, "/ng-rollout/r1/training-token-capture"))
    assert [reply.json()["id"] for reply in replies] == ["run-1"] * 3
    assert (await act(rig, cookies, {"input": "other"})).status == 409
    assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).status == 200
    for body in ({"input": "q"}, {"input": "other"}):
        assert (await act(rig, cookies, body)).status == 409
    assert harness.runs == 1


async def test_an_activation_that_failed_may_be_repeated_but_not_changed(rig: Rig, harness: Harness) -> None:
    cookies = await opened(rig)
    failed = await act(rig, cookies, {"input": "fail"})
    assert (failed.status, failed.json()["error"]["type"]) == (500, "agent_run_error")
    assert (await act(rig, cookies, {"input": "fail"})).status == 500
    assert (await act(rig, cookies, {"input": "q"})).status == 409
    assert harness.runs == 2


@pytest.mark.parametrize("prefix", ["/ng-rollout/r2", "/ng-rollout/r1-a1"])
async def test_an_activation_under_another_episode_is_refused_even_as_a_repeat(rig: Rig, harness: Harness, prefix: str) -> None:
    cookies = await opened(rig)
    assert (await act(rig, cookies, {"input": "q"}, prefix)).status == 409
    await act(rig, cookies, {"input": "q"}, "/ng-rollout/r1")
    assert (await act(rig, cookies, {"input": "q"}, prefix)).status == 409
    await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)
    assert (await act(rig, cookies, {"input": "q"}, prefix)).status == 409


async def test_a_waiter_that_disconnects_does_not_cancel_the_shared_work(rig: Rig, harness: Harness) -> None:
    cookies = await opened(rig)
    first = asyncio.ensure_future(act(rig, cookies, {"input": "q"}))
    await asyncio.sleep(0.003)
    first.cancel()
    assert (await act(rig, cookies, {"input": "q"})).json()["id"] == "run-1"
    assert harness.runs == 1


async def test_a_close_stops_the_harness_and_is_replayed(rig: Rig, harness: Harness) -> None:
    cookies = await opened(rig)
    running = asyncio.ensure_future(act(rig, cookies, {"input": "hang"}))
    await asyncio.sleep(0.01)
    first = await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)
    assert first.json() == {"agent_session_id": "a1", "agent_observations": {"runs": 1}, "agent_trajectory": {"steps": []}}
    assert harness.log == ["stopped", "closed"]
    assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).json() == first.json()
    assert (await running).status == 409
    for body in ({**CLOSE, "episode_id": {"rollout_id": "r2"}}, {**CLOSE, "episode_id": {"rollout_id": "r1", "attempt": 1}}):
        assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, body)).status == 409
    assert (await rig.call("agent", routes.AGENT_SESSIONS, agent_body())).status == 409


async def test_a_close_that_fails_is_no_close(rig: Rig, harness: Harness) -> None:
    await opened(rig)
    harness.close_fails = True
    failed = await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)
    assert (failed.status, failed.json()["error"]["type"]) == (500, "session_release_failed")
    harness.close_fails = False
    assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).json()["agent_observations"] == {"runs": 0}


@pytest.mark.parametrize("how", ["expired", "shutdown"])
async def test_the_harness_is_stopped_however_the_session_ends(rig: Rig, how: str) -> None:
    harness: Harness = await rig.add("agent", Harness, session_ttl_seconds=0.05 if how == "expired" else 100)
    cookies = await opened(rig)
    running = asyncio.ensure_future(act(rig, cookies, {"input": "hang"}))
    await asyncio.sleep(0.01)
    if how == "shutdown":
        await harness.stop()
    async with asyncio.timeout(3):
        while "closed" not in harness.log:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
    assert harness.log == ["stopped", "closed"]
    assert (await running).status == 409
    assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).json()["agent_observations"] == {"runs": 1}


async def test_an_unknown_close_fences(rig: Rig, harness: Harness) -> None:
    assert (await rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).json() == {"agent_session_id": "a1"}
    assert (await rig.call("agent", routes.AGENT_SESSIONS, agent_body())).status == 409


async def test_opening_with_another_body_or_bad_grants_is_refused(rig: Rig, harness: Harness) -> None:
    await opened(rig)
    other = {**agent_body(), "task_id": {"taskset": "t", "task_id": "2"}}
    assert (await rig.call("agent", routes.AGENT_SESSIONS, other)).status == 409
    grant = {"kind": "direct_http", "name": "tools", "required": True, "base_url": "http://x"}
    for accesses in ([grant, grant], [{**grant, "kind": "other"}], [{**grant, "extra": 1}], [{**grant, "name": "-"}]):
        reply = await rig.call("agent", routes.AGENT_SESSIONS, agent_body("a2", tool_accesses=accesses))
        assert reply.status == 422, accesses


class Arguments(BaseModel):
    """Of `add`."""

    number: int


class Tools(ResourcesServer[list[str]]):
    """Tools that work, refuse, break and hang."""

    async def seed(self, session: ResourcesSession[list[str]], task_data: dict[str, Any]) -> None:
        session.state = []

    @tool
    async def add(self, session: ResourcesSession[list[str]], arguments: Arguments) -> Any:
        await asyncio.sleep(0.02 if arguments.number == 1 else 0)
        session.state.append(f"add {arguments.number}")
        return {"numbers": list(session.state)}

    @tool
    async def refuse(self, session: ResourcesSession[list[str]]) -> Any:
        raise ContractError(400, "not like this")

    @tool
    async def breaks(self, session: ResourcesSession[list[str]]) -> Any:
        raise RuntimeError("inside")

    @tool
    async def unavailable(self, session: ResourcesSession[list[str]]) -> Any:
        raise ContractError(503, "no sandbox", kind="provider_unavailable")

    @tool
    async def hang(self, session: ResourcesSession[list[str]]) -> Any:
        await asyncio.get_running_loop().create_future()


NAMES = ("add", "refuse", "breaks", "unavailable", "hang")


class Bench:
    """An open session of `simple_agent` with tools and a scripted model."""

    def __init__(self, rig: Rig, cookies: dict[str, str]) -> None:
        self.rig, self.cookies = rig, cookies

    async def run(self, *steps: dict[str, Any]) -> Any:
        """Have the model play these steps."""
        tools = [{"type": "function", "name": name, "parameters": {}} for name in NAMES]
        body = {"input": [{"role": "user", "content": "go"}], "tools": tools, "metadata": {"script": json.dumps(steps)}}
        return await act(self.rig, self.cookies, body, "/ng-rollout/r1")

    async def outputs(self, *steps: dict[str, Any]) -> list[Any]:
        """What the tools answered, parsed."""
        reply = await self.run(*steps)
        assert reply.status == 200, reply.body
        return [json.loads(item["output"]) for item in reply.json()["output"] if item["type"] == "function_call_output"]


async def simple(rig: Rig, **config: Any) -> Bench:
    model = {"type": "responses_api_models", "name": "model"}
    await rig.add("model", ScriptedModel, ScriptedConfig())
    await rig.add("tools", Tools)
    await rig.add("agent", SimpleAgent, SimpleConfig(model_server=model, **config))  # pyright: ignore[reportArgumentType]
    seeded = await rig.call("tools", "/seed_session", seed_body())
    grant = {"kind": "direct_http", "name": "tools", "required": True, "base_url": rig.peers["tools"].url, "cookies": dict(seeded.cookies)}
    return Bench(rig, await opened(rig, tool_accesses=[grant]))


@pytest.fixture
async def bench(rig: Rig) -> Bench:
    return await simple(rig)


SAY = {"say": "Done."}


async def test_tools_are_called_in_order_and_usage_is_summed(bench: Bench) -> None:
    calls = [{"name": "add", "arguments": {"number": number}} for number in (1, 2, 3)]
    reply = (await bench.run({"calls": calls}, SAY)).json()
    kinds = [item["type"] for item in reply["output"]]
    assert kinds == ["function_call"] * 3 + ["function_call_output"] * 3 + ["message"]
    outputs = [json.loads(item["output"])["numbers"][-1] for item in reply["output"] if item["type"] == "function_call_output"]
    assert outputs == ["add 1", "add 2", "add 3"]
    ids = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
    assert [item["call_id"] for item in reply["output"] if item["type"] == "function_call_output"] == ids
    assert reply["usage"]["total_tokens"] == reply["usage"]["input_tokens"] + reply["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({"call": "add", "arguments": "{not json"}, "not valid JSON"),
        ({"call": "add", "arguments": "[1]"}, "must be a JSON object"),
        ({"call": "add", "arguments": {"number": "many"}}, "number"),
        ({"call": "subtract", "arguments": {}}, "there is no tool 'subtract'; there are: add"),
        ({"call": "close_session", "arguments": {}}, "there is no tool"),
        ({"call": "../verify", "arguments": {}}, "there is no tool"),
        ({"call": "refuse"}, "not like this"),
        ({"call": "breaks"}, "RuntimeError: inside"),
    ],
)
async def test_the_models_own_mistakes_go_back_to_it(bench: Bench, step: dict[str, Any], told: str) -> None:
    outputs = await bench.outputs(step, {"call": "add", "arguments": {"number": 5}}, SAY)
    assert told in outputs[0]["error"]
    assert outputs[1] == {"numbers": ["add 5"]}


async def test_a_tool_server_that_cannot_serve_fails_the_episode(bench: Bench) -> None:
    reply = await bench.run({"call": "unavailable"}, SAY)
    assert (reply.status, reply.json()["error"]["type"]) == (503, "provider_unavailable")


async def test_a_tool_server_that_is_not_there_or_lost_the_session_fails_the_episode(bench: Bench) -> None:
    await bench.rig.call("tools", "/close_session", {"resources_session_id": "s1", "episode_id": EPISODE})
    reply = await bench.run({"call": "add", "arguments": {"number": 1}}, SAY)
    assert (reply.status, reply.json()["error"]["type"]) == (409, "session_lost")
    bench.rig.transport._apps.pop("tools.in-process")
    reply = await bench.run({"call": "add", "arguments": {"number": 2}}, SAY)
    error = reply.json()["error"]
    assert (reply.status, error["type"], error["terminal"]) == (502, "transport_unreachable", False)


async def test_max_steps_ends_the_loop_as_incomplete(rig: Rig) -> None:
    bench = await simple(rig, max_steps=2)
    add = {"call": "add", "arguments": {"number": 1}}
    reply = (await bench.run(add, add, add, SAY)).json()
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_steps"})
    assert [item["type"] for item in reply["output"]] == ["function_call", "function_call_output", "function_call"]


@pytest.mark.parametrize("step", [{"hang": True}, {"call": "hang"}])
async def test_a_close_reports_the_work_so_far(bench: Bench, step: dict[str, Any]) -> None:
    running = asyncio.ensure_future(bench.run({"call": "add", "arguments": {"number": 1}}, step, SAY))
    await asyncio.sleep(0.1)
    closed = (await bench.rig.call("agent", routes.CLOSE_AGENT_SESSION, CLOSE)).json()
    assert (await running).status == 409
    partial = closed["partial_response"]
    assert [item["type"] for item in partial["output"]][:2] == ["function_call", "function_call_output"]
    assert partial["status"] == "incomplete"
    assert "gym_tools" in closed["resources_cookies"]


async def test_a_session_can_be_activated_again_and_one_after_the_other(bench: Bench) -> None:
    one, two = await asyncio.gather(
        bench.run({"call": "add", "arguments": {"number": 1}}, SAY), bench.run({"call": "add", "arguments": {"number": 2}}, SAY)
    )
    for reply in (one, two):
        assert [item["type"] for item in reply.json()["output"]] == ["function_call", "function_call_output", "message"]


@pytest.mark.parametrize(
    ("step", "status", "kind"),
    [
        ({"status": 401}, 401, "scripted_model:credentials_refused"),
        ({"status": 429, "retry_after": 3}, 429, "agent_request_failed"),
        ({"status": 500}, 500, "agent_request_failed"),
        ({"body": "<html>"}, 502, "agent_request_failed"),
        ({"body": '{"id": 3}'}, 502, "agent_request_failed"),
        ({"body": "[]"}, 502, "agent_request_failed"),
        ({"body": '{"id": "r", "status": "failed", "output": [], "error": {"message": "boom"}}'}, 502, "agent_request_failed"),
    ],
)
async def test_what_the_model_does_wrong_fails_the_episode_with_its_kind(
    bench: Bench, step: dict[str, Any], status: int, kind: str
) -> None:
    reply = await bench.run({"call": "add", "arguments": {"number": 1}}, step)
    error = reply.json()["error"]
    assert (reply.status, error["type"], error["terminal"]) == (status, kind, status == 401)


async def test_grants_that_cannot_be_used_fail_the_seed(rig: Rig) -> None:
    await simple(rig)
    grant = {"kind": "direct_http", "name": "one", "required": True, "base_url": "http://x"}
    mcp = {"kind": "mcp", "name": "m", "required": True, "connection": {"url": "http://x"}}
    for accesses in ([grant, {**grant, "name": "two"}], [mcp]):
        assert (await rig.call("agent", routes.AGENT_SESSIONS, agent_body("a2", tool_accesses=accesses))).status == 422
    assert (await rig.call("agent", routes.AGENT_SESSIONS, agent_body("a3", tool_accesses=[{**mcp, "required": False}]))).status == 200


async def test_streaming_is_refused_and_said(bench: Bench) -> None:
    assert (await act(bench.rig, bench.cookies, {"input": "q", "stream": True})).status == 422
