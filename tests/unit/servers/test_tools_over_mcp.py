"""The tools of a resources server over MCP, called by the official client over a real socket as a sandbox has it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.runtime.listen import answering, open_socket, url_of
from gym.servers import ResourcesServer, ResourcesSession, Scored, tool
from gym.servers.auth import CookieSigner
from tests.unit.servers.conftest import EPISODE, VERIFY, Rig, seed_body

HEADER = routes.MCP_SESSION_HEADER
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Each client would otherwise read all certificates of this machine."""


class Increment(BaseModel):
    """What to add."""

    count: int = Field(description="How much")


class Counter(ResourcesServer[int]):
    """A counter per session."""

    async def seed(self, session: ResourcesSession[int], task_data: dict[str, Any]) -> None:
        session.state = task_data.get("start", 0)
        self.hanging = asyncio.Event()

    @tool
    async def add(self, session: ResourcesSession[int], arguments: Increment) -> dict[str, int]:
        """Add to the counter."""
        await asyncio.sleep(0)
        session.state += arguments.count
        return {"sum": session.state}

    @tool
    async def value(self, session: ResourcesSession[int]) -> int:
        """Tell the counter's value."""
        return session.state

    @tool
    async def refuse(self, session: ResourcesSession[int]) -> None:
        """Refuse."""
        raise ContractError(409, "not now")

    @tool
    async def fail(self, session: ResourcesSession[int]) -> None:
        """Break."""
        raise RuntimeError("the database is gone")

    @tool
    async def hang(self, session: ResourcesSession[int]) -> None:
        """Never end."""
        self.hanging.set()
        await asyncio.get_running_loop().create_future()

    async def verify(self, session: ResourcesSession[int] | None, request: BaseVerifyRequest) -> Scored:
        assert session is not None
        return Scored(float(session.state))


class Served:
    """The server, and the URL that sandboxes have of it."""

    def __init__(self, rig: Rig, server: Counter, url: str) -> None:
        self.rig, self.server, self.url = rig, server, url

    async def seed(self, session_id: str = "s1", **data: Any) -> tuple[dict[str, str], dict[str, str]]:
        """Open a session: the MCP headers, and the cookies."""
        reply = await self.rig.call("box", routes.SEED_SESSION, seed_body(session_id, **data))
        tools = reply.json()["resources_tools"]
        assert {**tools, "headers": list(tools["headers"])} == {
            "server_name": "box",
            "url_path": "/mcp",
            "transport": "http",
            "headers": [HEADER],
        }
        return tools["headers"], dict(reply.cookies)

    async def close(self, session_id: str = "s1") -> None:
        await self.rig.call("box", routes.CLOSE_SESSION, {"resources_session_id": session_id, "episode_id": EPISODE})

    @contextlib.asynccontextmanager
    async def client(self, headers: dict[str, str], **options: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, verify=_NO_TLS) as http,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=http), **options) as client,
        ):
            yield client

    async def post(self, headers: dict[str, str], body: Any, method: str = "POST") -> httpx2.Response:
        async with httpx2.AsyncClient(headers=headers, verify=_NO_TLS) as http:
            return await http.request(method, f"{self.url}/mcp", json=body)


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    server: Counter = await rig.add("box", Counter, expose_tools_over_mcp=True)
    listener = open_socket("127.0.0.1", 0, "box")
    async with answering(server.app().data(), listener):
        yield Served(rig, server, url_of(listener))


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_the_tools_are_listed_with_their_schemas(served: Served) -> None:
    headers, _ = await served.seed()
    async with served.client(headers) as client:
        tools = {found.name: found for found in (await client.list_tools()).tools}
    assert list(tools) == ["add", "fail", "hang", "refuse", "value"]
    assert tools["add"].description == "Add to the counter."
    assert tools["add"].input_schema["properties"]["count"] == {"description": "How much", "title": "Count", "type": "integer"}
    assert tools["value"].input_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_works_on_the_state_that_plain_http_sees(served: Served, mode: str) -> None:
    headers, cookies = await served.seed(start=1)
    async with served.client(headers, mode=mode) as client:
        assert client.server_info.name == "box"
        said = await client.call_tool("add", {"count": 2})
        assert (said.is_error, text(said)) == (False, '{"sum":3}')
        assert (await served.rig.call("box", "/add", {"count": 4}, cookies=cookies)).json() == {"sum": 7}
        assert text(await client.call_tool("value", {})) == "7"
    assert (await served.rig.call("box", routes.VERIFY, VERIFY, cookies=cookies)).json()["reward"] == 7


async def test_what_the_model_can_mend_is_a_result_and_what_broke_is_an_error(served: Served) -> None:
    headers, cookies = await served.seed()
    async with served.client(headers) as client:
        said = await client.call_tool("add", {"count": "many"})
        over_http = (await served.rig.call("box", "/add", {"count": "many"}, cookies=cookies)).json()["error"]["message"]
        assert (said.is_error, text(said)) == (True, over_http)
        assert "count: input should be a valid integer" in over_http
        assert text(await client.call_tool("refuse", {})) == "not now"
        with pytest.raises(MCPError, match=r"^there is no tool 'nothing'; there are: add, fail, hang, refuse, value$"):
            await client.call_tool("nothing", {})
        with pytest.raises(MCPError, match=r"^RuntimeError: the database is gone$"):
            await client.call_tool("fail", {})
        assert text(await client.call_tool("value", {})) == "0"
    broken = await served.post(headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail"}})
    assert broken.status_code == 500


async def test_a_wrong_token_opens_nothing(served: Served) -> None:
    headers, cookies = await served.seed()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    cookie = next(iter(cookies.values()))
    other_run = CookieSigner("another secret", "box").sign("s1")
    run = f"Bearer {served.rig.credentials.token}"
    for sent in ({}, {HEADER: "s1"}, {HEADER: cookie}, {HEADER: other_run}, {HEADER: headers[HEADER][:-1]}, {"authorization": run}):
        reply = await served.post(sent, body)
        assert reply.status_code == 401
        assert reply.json()["error"]["message"].startswith(f"/mcp needs the header {HEADER}")
    with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="needs the header"), flatten_subgroups=True):
        async with served.client({HEADER: "s1"}):
            pass
    # The token opens tools over MCP, and no other route.
    assert (await served.rig.call("box", "/value", {}, cookies={served.server._cookies.name: headers[HEADER]})).status == 401
    assert (await served.post(headers, body)).status_code == 200


async def test_a_session_that_is_gone_is_not_found(served: Served) -> None:
    headers, _ = await served.seed()
    async with served.client(headers) as client:
        running = asyncio.ensure_future(client.call_tool("hang", {}))
        await served.server.hanging.wait()
        await served.close()
        with pytest.raises(MCPError, match="was closed while this was running"):
            await running
        with pytest.raises(MCPError, match=r"^resources session s1 is closed$"):
            await client.call_tool("value", {})
    reply = await served.post(headers, {"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
    assert (reply.status_code, reply.json()["id"]) == (404, None)


async def test_what_is_no_request_is_refused_in_one_line(served: Served) -> None:
    headers, _ = await served.seed()
    known = {"jsonrpc": "2.0", "id": "a"}
    for body, status, said in (
        ([{**known, "method": "ping"}], 422, "the body of /mcp is not a valid MCPRequest"),
        ({"id": 1}, 422, "the body of /mcp is not a valid MCPRequest"),
        ({**known, "method": "resources/list"}, 200, "there is no method 'resources/list'"),
        ({**known, "method": "tools/call", "params": {}}, 200, "the parameters of tools/call"),
    ):
        reply = await served.post(headers, body)
        message = reply.json()["error"]["message"]
        assert (reply.status_code, "\n" in message) == (status, False)
        assert said in message
    assert (await served.post(headers, {"jsonrpc": "2.0", "method": "notifications/cancelled"})).status_code == 202
    for method in ("GET", "DELETE"):
        assert (await served.post(headers, None, method)).status_code == 405


@pytest.mark.parametrize(("asked", "got"), [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("2099-01-01", "2025-11-25")])
async def test_the_revision_is_the_clients_where_it_is_known(served: Served, asked: str, got: str) -> None:
    headers, _ = await served.seed()
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked}}
    assert (await served.post(headers, body)).json()["result"]["protocolVersion"] == got


async def test_many_sessions_at_once_do_not_mix(served: Served) -> None:
    """As a run begins: every agent connects in the same moment."""
    count = 200

    async def work(number: int) -> list[str]:
        headers, _ = await served.seed(f"s{number}", start=number * 1000)
        async with served.client(headers, mode="legacy") as client:
            await client.list_tools()
            return [text(await client.call_tool("add", {"count": 1})) for _ in range(3)]

    said = await asyncio.gather(*(work(number) for number in range(count)))
    assert said == [[f'{{"sum":{number * 1000 + step}}}' for step in (1, 2, 3)] for number in range(count)]
    assert len(served.server.sessions) == count


async def test_a_server_that_does_not_expose_them_has_no_such_route(rig: Rig) -> None:
    await rig.add("box", Counter)
    reply = await rig.call("box", routes.SEED_SESSION, seed_body())
    assert reply.json() == {"resources_session_id": "s1"}
    assert (await rig.call("box", "/mcp", {})).status == 404


async def test_the_old_form_of_a_seed_tells_the_token_too(served: Served) -> None:
    tools = (await served.rig.call("box", routes.SEED_SESSION, {"start": 5})).json()["mcp"]
    async with served.client(tools["headers"]) as client:
        assert text(await client.call_tool("value", {})) == "5"


async def test_a_tool_cannot_have_the_name_of_a_route(rig: Rig) -> None:
    class Wrong(ResourcesServer[int]):
        @tool
        async def mcp(self, session: ResourcesSession[int]) -> None: ...

    with pytest.raises(TypeError, match=r"^tool 'mcp' has the name of a route of the contract"):
        await rig.add("wrong", Wrong)
