"""The configuration of `noop_agent`."""

from pydantic import Field

from gym.config.schema import AgentConfig


class Config(AgentConfig):
    """Does nothing, and says so."""

    sleep_seconds: float = Field(default=0, ge=0)
    """How long it does nothing, in seconds."""
