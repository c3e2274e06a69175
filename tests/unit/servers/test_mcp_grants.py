"""What an environment server, and a harness, make of tools that a resources server offers over MCP."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from environment_servers.single_agent_turn.app import SingleAgentTurnServer
from environment_servers.single_agent_turn.config import Config
from gym.client import CallError
from gym.harness.tools import granted_servers, refuse_unusable, with_common_names
from gym.protocol import routes
from gym.protocol.access import DirectHTTPToolAccess, MCPConnection, MCPServerMetadata, MCPToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.protocol.responses import Response, ResponseCreateParams, function_calls
from gym.servers import AgentServer, AgentSession, ResourcesServer, ResourcesSession, Scored, tool
from tests.unit.servers.conftest import EPISODE, TASK, VERIFY, Rig, seed_body


class City(BaseModel):
    """Which."""

    city: str


class Weather(ResourcesServer[None]):
    """Its verdict is the number of `look` calls in the transcript, as it knows its tool itself."""

    server_name: str | None = None

    async def seed(self, session: ResourcesSession[None], task_data: dict[str, Any]) -> None:
        if self.server_name is not None:
            session.resources_tools = MCPServerMetadata(server_name=self.server_name)

    @tool
    async def look(self, session: ResourcesSession[None], arguments: City) -> str:
        """Look."""
        return arguments.city

    async def verify(self, session: ResourcesSession[None] | None, request: BaseVerifyRequest) -> Scored:
        return Scored(float([call["name"] for call in function_calls(request.response.output)].count("look")))


class Agent(AgentServer[None]):
    """Keeps what it was granted, and says that it called the tool."""

    grants: tuple[Any, ...] = ()

    async def open_session(self, session: AgentSession[None]) -> None:
        session.state = None
        type(self).grants = session.tool_accesses

    async def respond(self, session: AgentSession[None], params: ResponseCreateParams, prefix: str) -> Response:
        names = ("mcp__weather__look", "look", "mcp__other__look")
        return Response(id="r", output=[{"type": "function_call", "name": n, "call_id": n, "arguments": "{}"} for n in names])


async def run(rig: Rig, transports: list[str], exposed: bool = True) -> dict[str, Any]:
    await rig.add("weather", Weather, expose_tools_over_mcp=exposed)
    await rig.add("agent", Agent)
    config = Config.model_validate(
        {
            "resources_server": {"type": "resources_servers", "name": "weather"},
            "agent_server": {"type": "responses_api_agents", "name": "agent"},
            "resources_tool_transports": transports,
        }
    )
    await rig.add("env", SingleAgentTurnServer, config)
    task_input = {"responses_create_params": {"input": "go"}, "task_data": {}}
    return (await rig.call("env", routes.RUN, {"episode_id": EPISODE, "task": {"task_id": TASK, "task_input": task_input}})).json()


async def test_an_agent_is_granted_both_ways_to_the_same_session(rig: Rig) -> None:
    result = (await run(rig, ["direct_http", "mcp"]))["result"]
    direct, mcp = Agent.grants
    assert (direct.kind, direct.name, direct.required) == ("direct_http", "weather.direct_http", True)
    assert (mcp.kind, mcp.name, mcp.required) == ("mcp", "weather", True)
    assert mcp.connection.url == rig.peers["weather"].url + "/mcp"
    assert list(mcp.connection.headers) == [routes.MCP_SESSION_HEADER]
    # A verifier knows its tools by their plain names; the transcript stays as it was.
    assert result["reward"] == 2.0
    assert [item["name"] for item in result["response"]["output"]] == ["mcp__weather__look", "look", "mcp__other__look"]


@pytest.mark.parametrize(("transports", "kinds"), [(["mcp"], ["mcp"]), (["direct_http"], ["direct_http"]), ([], [])])
async def test_only_what_is_asked_for_is_granted(rig: Rig, transports: list[str], kinds: list[str]) -> None:
    assert "result" in await run(rig, transports)
    assert [grant.kind for grant in Agent.grants] == kinds


async def test_a_server_that_does_not_offer_them_fails_the_seed(rig: Rig) -> None:
    failure = (await run(rig, ["mcp"], exposed=False))["failure"]
    assert (failure["stage"], failure["terminal"], failure["failure_kind"]) == ("seed", True, "protocol_violation")
    reason = "weather offers no tools over MCP, but resources_tool_transports asks for them: set expose_tools_over_mcp on it"
    assert failure["failure_reason"] == reason
    assert len(rig.servers["weather"].sessions) == 0  # pyright: ignore[reportAttributeAccessIssue]


async def test_two_grants_cannot_have_one_name(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weather, "server_name", "weather.direct_http")
    failure = (await run(rig, ["direct_http", "mcp"]))["failure"]
    assert failure["failure_reason"].endswith("which is the name of its other grant")
    assert failure["terminal"]


def direct(*, required: bool = True) -> DirectHTTPToolAccess:
    return DirectHTTPToolAccess(name="d", required=required, base_url="http://x")


def mcp(url: str, headers: Mapping[str, str], *, required: bool = True, name: str = "weather") -> MCPToolAccess:
    return MCPToolAccess(name=name, required=required, connection=MCPConnection(url=url, headers=dict(headers)))


@pytest.mark.parametrize(
    ("transports", "reason"),
    [
        ((), r"^X takes no tools of the task, but was given d \(resources_tool_transports: \[\]\)$"),
        (("mcp",), r"^X takes tools of the task over mcp alone, but was given d \(resources_tool_transports: \[mcp\]\)$"),
    ],
)
def test_a_harness_refuses_a_required_grant_that_it_cannot_use(transports: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ContractError, match=reason) as raised:
        refuse_unusable([direct()], transports, "X")
    assert raised.value.status == 422
    refuse_unusable([direct(required=False)], transports, "X")


async def inside(url: str) -> str:
    return url.replace("weather.in-process", "172.18.0.1:4000")


async def test_a_harness_is_given_the_address_that_its_sandbox_has(rig: Rig) -> None:
    await rig.add("weather", Weather, expose_tools_over_mcp=True)
    headers = (await rig.call("weather", routes.SEED_SESSION, seed_body())).json()["resources_tools"]["headers"]
    url = rig.peers["weather"].url + "/mcp"
    (server,) = await granted_servers([direct(required=False), mcp(url, headers)], inside, rig.transport)
    assert (server.url, server.tools, dict(server.headers), server.required) == ("http://172.18.0.1:4000/mcp", ("look",), headers, True)


async def test_a_server_that_refuses_is_left_out_only_if_it_is_not_required(rig: Rig) -> None:
    await rig.add("weather", Weather, expose_tools_over_mcp=True)
    url = rig.peers["weather"].url + "/mcp"
    assert await granted_servers([mcp(url, {}, required=False)], inside, rig.transport) == ()
    with pytest.raises(CallError, match="needs the header"):
        await granted_servers([mcp(url, {})], inside, rig.transport)

    async def nowhere(url: str) -> str:
        raise ContractError(422, "no way")

    assert await granted_servers([mcp(url, {}, required=False)], nowhere, rig.transport) == ()
    with pytest.raises(ContractError, match="no way"):
        await granted_servers([mcp(url, {})], nowhere, rig.transport)


async def test_what_is_no_list_of_tools_is_said(rig: Rig) -> None:
    async def odd(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"result": {"tools": "many"}}'})

    rig.transport.add("odd.in-process", odd)
    with pytest.raises(ContractError, match=r"^weather did not list its tools: ") as raised:
        await granted_servers([mcp("http://odd.in-process/mcp", {})], inside, rig.transport)
    assert raised.value.terminal


async def test_the_tools_of_a_harness_get_their_common_names(rig: Rig) -> None:
    await rig.add("weather", Weather, expose_tools_over_mcp=True)
    headers = (await rig.call("weather", routes.SEED_SESSION, seed_body())).json()["resources_tools"]["headers"]
    servers = await granted_servers([mcp(rig.peers["weather"].url + "/mcp", headers)], inside, rig.transport)
    items = [{"type": "function_call", "name": name} for name in ("weather_look", "bash")] + [{"type": "message", "name": "weather_look"}]
    named = with_common_names(items, servers, lambda server, tool: f"{server}_{tool}")
    assert [item["name"] for item in named] == ["mcp__weather__look", "bash", "weather_look"]


async def test_a_typed_verify_knows_plain_names_too(rig: Rig) -> None:
    await rig.add("weather", Weather, expose_tools_over_mcp=True)
    call = {"type": "function_call", "name": "mcp__weather__look", "call_id": "1", "arguments": "{}"}
    given = {**VERIFY, "response": {"id": "r", "output": [call]}}
    body = {"episode_id": EPISODE, "task_id": TASK, "verification_input": given}
    assert (await rig.call("weather", routes.VERIFY, body)).json()["reward"] == 1.0
