"""The configuration of `oracle_agent`."""

from pydantic import Field

from gym.config.schema import AgentConfig


class Config(AgentConfig):
    """Applies the gold patch. Times in seconds."""

    sleep_seconds: float = Field(default=0, ge=0)
    """Stay this long in the sandbox first: for tests of what happens while an agent works."""
    apply_timeout: float = Field(default=300, gt=0)
    """The longest that applying the gold patch may take."""
