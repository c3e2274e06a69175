"""What code in a sandbox may call: the data routes, under its own rollout's token, and nothing else at all."""

from typing import Any

import pytest
from pydantic import BaseModel

from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.servers import AgentServer, ModelServer, ResourcesServer, ResourcesSession, tool
from gym.servers.context import PeerInfo
from tests.unit.servers.conftest import MakeRig, Rig, seed_body

CONTROL = {
    "model": [
        ("POST", "/v1/responses"),
        ("GET", "/v1/models"),
        ("POST", "/v1/messages"),
        ("GET", "/status"),
        ("POST", "/drain"),
        ("GET", "/readyz"),
        ("POST", "/ng-rollout/r1/v1/capture/open"),
        ("POST", "/ng-rollout/r1/v1/capture/close"),
        ("GET", "/ng-rollout/r1/v1/capture"),
        ("DELETE", "/ng-rollout/r1/v1/capture"),
    ],
    "box": [
        *(("POST", path) for path in ("/seed_session", "/verify", "/close_session", "/aggregate_metrics", "/run", "/ng-rollout/r1/touch")),
        ("GET", "/reverify_mode"),
        ("GET", "/readyz"),
        ("GET", "/server_instances"),
    ],
    "agent": [("POST", "/v1/agent_sessions"), ("POST", "/v1/agent_sessions/close"), ("POST", "/ng-rollout/r1/v1/responses")],
}


class Model(ModelServer):
    async def responses(self, call: Any) -> Any:
        return {"key": call.capture_key}


class Number(BaseModel):
    number: int


class Box(ResourcesServer[int]):
    async def seed(self, session: ResourcesSession[int], task_data: dict[str, Any]) -> None:
        session.state = 0

    @tool
    async def touch(self, session: ResourcesSession[int], number: Number) -> Any:
        """Count."""
        session.state += number.number
        return {"sum": session.state}


@pytest.fixture
async def seen(rig: Rig) -> Rig:
    """A run, and beside each server `<name>-data`: what a sandbox sees of it."""
    await rig.add("model", Model)
    await rig.add("box", Box)
    await rig.add("agent", AgentServer)
    see(rig)
    return rig


def see(rig: Rig) -> None:
    for name, server in list(rig.servers.items()):
        rig.peers[f"{name}-data"] = PeerInfo(f"{name}-data", server.kind, name, f"http://{name}-data.in-process")
        rig.transport.add(f"{name}-data.in-process", server.app().data())


async def ask(rig: Rig, name: str, method: str, path: str, **headers: str) -> tuple[int, Any]:
    reply = await rig.transport.send(method, rig.peers[f"{name}-data"].url + path, headers, b'{"input":"q"}' if method == "POST" else b"")
    return reply.status, reply.json()


@pytest.mark.parametrize(("name", "method", "path"), [(name, *route) for name, found in CONTROL.items() for route in found])
async def test_a_control_route_is_not_there(seen: Rig, name: str, method: str, path: str) -> None:
    """Not with the run's token either; and its answer is the one of a path that never was."""
    status, body = await ask(seen, name, method, path, **seen.credentials.headers())
    unknown = await ask(seen, name, method, "/no/such/path", **seen.credentials.headers())
    assert status == 404
    assert (status, str(body).replace(path, "X")) == (unknown[0], str(unknown[1]).replace("/no/such/path", "X"))


async def test_the_wrong_method_of_a_control_route_tells_nothing(seen: Rig) -> None:
    assert (await ask(seen, "box", "GET", routes.VERIFY))[0] == 404


async def test_a_model_answers_under_the_token_of_its_rollout_alone(seen: Rig) -> None:
    token = f"Bearer {seen.credentials.rollout_token('r1')}"
    assert await ask(seen, "model", "POST", "/ng-rollout/r1/v1/responses", authorization=token) == (200, {"key": "r1"})
    capture = f"/ng-rollout/r1/{routes.TOKEN_CAPTURE}/v1/responses"
    assert (await ask(seen, "model", "POST", capture, authorization=token))[0] == 200
    assert (await ask(seen, "model", "GET", "/ng-rollout/r1/v1/models", authorization=token))[0] == 200
    for path, sent in (("r2", token), ("r1", f"Bearer {seen.credentials.token}"), ("r1", ""), ("r1-a1", token)):
        status, body = await ask(seen, "model", "POST", f"/ng-rollout/{path}/v1/responses", authorization=sent)
        assert status == 401
        assert "gym env" not in str(body)


async def test_no_authentication_is_for_loopback_only(make_rig: MakeRig) -> None:
    async with make_rig(token=None) as rig:
        await rig.add("model", Model)
        see(rig)
        assert (await rig.call("model", routes.RESPONSES, {})).status == 200
        assert (await ask(rig, "model", "POST", "/ng-rollout/r1/v1/responses"))[0] == 401
        token = f"Bearer {rig.credentials.rollout_token('r1')}"
        assert (await ask(rig, "model", "POST", "/ng-rollout/r1/v1/responses", authorization=token))[0] == 200


async def test_a_tool_answers_to_its_session_cookie(seen: Rig) -> None:
    cookies = (await seen.call("box", routes.SEED_SESSION, seed_body())).cookies
    assert (await seen.call("box-data", "/touch", {"number": 2}, cookies=cookies, x="y")).json() == {"sum": 2}
    assert (await seen.call("box-data", "/touch", {"number": 2})).status == 401


async def test_health_says_nothing_about_who_answers(seen: Rig) -> None:
    assert [await ask(seen, name, "GET", routes.HEALTH) for name in CONTROL] == [(200, {"status": "ok"})] * 3


def context_of(rig: Rig, **fields: Any) -> Any:
    from dataclasses import replace

    blocks: dict[str, Any] = {"sandbox": {"docker": {}}, "shut": {"local": {}}}
    rig.peers["model"] = replace(rig.peers["model"], published={"sandbox": "http://172.18.0.1:4000"})
    return replace(rig.servers["agent"].context, sandbox_providers=blocks, unreachable={"shut": "its network is 'none'"}, **fields)


async def test_an_address_is_given_by_provider_block(seen: Rig) -> None:
    context = context_of(seen)
    assert context.published_url("model", "sandbox") == "http://172.18.0.1:4000"
    assert context.published_url(seen.peers["model"].url + "/mcp", "sandbox") == "http://172.18.0.1:4000/mcp"


@pytest.mark.parametrize(
    ("target", "block", "why"),
    [
        ("model", "shut", "code in a sandbox of 'shut' cannot call model: its network is 'none'"),
        ("model", "other", "no sandbox provider of this name (known: sandbox, shut)"),
        ("agent", "sandbox", "servers of kind responses_api_agents offer nothing to sandboxes"),
        ("elsewhere", "sandbox", "it runs elsewhere, under a token that no sandbox may have"),
        ("http://model.in-process.evil/x", "sandbox", "is no address of this run"),
    ],
)
async def test_where_there_is_no_way_it_is_said_why(seen: Rig, target: str, block: str, why: str) -> None:
    context = context_of(seen)
    seen.peers["elsewhere"] = PeerInfo("elsewhere", "responses_api_models", "m", "http://10.0.0.7:1", remote=True)
    with pytest.raises(ContractError) as caught:
        context.published_url(target, block)
    assert why in caught.value.message
    assert (caught.value.status, caught.value.terminal) == (422, True)
