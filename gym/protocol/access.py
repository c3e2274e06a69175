"""What one server lets another use: tools and sandboxes. A grant never moves ownership."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gym.protocol.base import WireRequest

GrantName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class DirectHTTPToolAccess(WireRequest):
    """Tools that are called by `POST <base_url>/<tool>` with the given cookies and headers."""

    kind: Literal["direct_http"] = "direct_http"
    name: GrantName
    required: bool
    base_url: str
    cookies: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class MCPConnection(WireRequest):
    """Where an MCP server answers."""

    transport: Literal["streamable_http"] = "streamable_http"
    url: str
    headers: dict[str, str] = Field(default_factory=dict)


class MCPToolAccess(WireRequest):
    """Tools that are offered over MCP."""

    kind: Literal["mcp"] = "mcp"
    name: GrantName
    required: bool
    connection: MCPConnection


ToolAccess = Annotated[DirectHTTPToolAccess | MCPToolAccess, Field(discriminator="kind")]


class DirectSandboxConnection(WireRequest):
    """How to reach a sandbox: the name of a provider block, and the provider's own descriptor.

    No credentials travel: the borrower resolves `provider_config_ref` in its own configuration.
    """

    kind: Literal["direct"] = "direct"
    provider_config_ref: str
    descriptor: dict[str, Any]


class SandboxAccess(WireRequest):
    """A sandbox lent to an agent. The borrower can work in it and has no way to stop it."""

    connection: DirectSandboxConnection
    workdir: str


class MCPServerMetadata(WireRequest):
    """What a resources server says at seed about its tools over MCP."""

    server_name: GrantName
    url_path: str = "/mcp"
    transport: Literal["http"] = "http"
    headers: dict[str, str] = Field(default_factory=dict)
