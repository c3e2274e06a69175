"""What a harness gets of the tools that its session was granted: MCP servers, at addresses that its sandbox reaches.

Invariant: a required grant that cannot be used refuses the session; one that is not required is left out. Whether a server answers
with its tools is asked from here too, so that one that is broken fails the session and not the harness, which would go on without it.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from pydantic import BaseModel

from gym.client import CallError, Peer, Transport
from gym.harness.adapter import MCPServer
from gym.protocol.access import MCPToolAccess, ToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.responses import Item

log = logging.getLogger("gym.harness")

_LIST_SECONDS = 60.0
_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
"""Servers of our runs need no handshake before it, and no sandbox reaches others."""


class _Named(BaseModel):
    name: str


class _Tools(BaseModel):
    tools: list[_Named]


class _Listing(BaseModel):
    result: _Tools


def refuse_unusable(accesses: Iterable[ToolAccess], transports: Collection[str], title: str) -> None:
    """Raise ContractError (422) for required grants of a kind that the harness cannot use."""
    unusable = [access.name for access in accesses if access.required and access.kind not in transports]
    if unusable:
        used = ", ".join(sorted(transports))
        reason = f"takes tools of the task over {used} alone" if used else "takes no tools of the task"
        raise ContractError(422, f"{title} {reason}, but was given {', '.join(unusable)} (resources_tool_transports: [{used}])")


async def granted_servers(
    accesses: Iterable[ToolAccess], url_inside: Callable[[str], Awaitable[str]], transport: Transport
) -> tuple[MCPServer, ...]:
    """The MCP servers of the grants. Raises ContractError, or CallError, for a required one that cannot be used."""
    servers: list[MCPServer] = []
    for access in accesses:
        if not isinstance(access, MCPToolAccess):
            continue
        try:
            url = await url_inside(access.connection.url)
            tools = await _tools_of(access, transport)
            servers.append(MCPServer(access.name, url, access.connection.headers, tools, access.required))
        except (CallError, ContractError) as error:
            if access.required:
                raise
            log.warning("the tools of %s are left out: %s", access.name, error)
    return tuple(servers)


async def _tools_of(access: MCPToolAccess, transport: Transport) -> tuple[str, ...]:
    headers = {"accept": "application/json, text/event-stream", **access.connection.headers}
    reply = await Peer(access.name, access.connection.url, transport, headers=headers).post("", _LIST, timeout=_LIST_SECONDS)
    try:
        return tuple(tool.name for tool in _Listing.model_validate_json(reply.body).result.tools)
    except ValueError as error:
        raise ContractError(502, f"{access.name} did not list its tools: {reply.body[:200]!r}", terminal=True) from error


def with_common_names(items: list[Item], servers: Iterable[MCPServer], name_of: Callable[[str, str], str]) -> list[Item]:
    """The items with `mcp__<server>__<tool>` for what the harness calls a granted tool (`name_of`)."""
    names = {name_of(server.name, tool): f"mcp__{server.name}__{tool}" for server in servers for tool in server.tools}

    def renamed(item: Item) -> Item:
        name: Any = item.get("name")
        return {**item, "name": names[name]} if item.get("type") == "function_call" and name in names else item

    return [renamed(item) for item in items]
