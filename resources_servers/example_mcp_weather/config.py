"""The configuration of `example_mcp_weather`."""

from pydantic import Field

from gym.config.schema import ResourcesServerConfig
from gym.sandbox.spec import SandboxSpec


class Config(ResourcesServerConfig):
    """Tools over MCP, and on request a sandbox for an agent that works in one."""

    expose_tools_over_mcp: bool = True
    sandbox_provider: str | None = None
    """The provider block that each session's sandbox is made with; None: the agent needs none."""
    sandbox_config: SandboxSpec = Field(default_factory=SandboxSpec)
    """What that sandbox is like."""
