"""The configuration of `shell_agent`."""

from gym.config.schema import AgentConfig


class Config(AgentConfig):
    """Nothing of its own."""
