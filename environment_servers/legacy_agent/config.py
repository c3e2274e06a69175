"""The configuration of `legacy_agent`."""

from gym.config.schema import AgentRef, EnvironmentServerConfig


class Config(EnvironmentServerConfig):
    """Which agent runs the rollouts, all of them by itself."""

    agent_server: AgentRef
    """The agent that runs the rollouts."""
