"""The configuration of `single_agent_turn`."""

from typing import Literal

from pydantic import Field

from gym.config.schema import AgentRef, EnvironmentServerConfig, ResourcesServerRef


class Config(EnvironmentServerConfig):
    """Which resources server and which agent make up the episode."""

    resources_server: ResourcesServerRef
    """The server of the task."""
    agent_server: AgentRef
    """The agent that acts."""
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)
    """How the agent may reach the resources server's tools; empty where it needs none."""
