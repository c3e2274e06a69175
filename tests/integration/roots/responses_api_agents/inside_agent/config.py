"""The configuration of `inside_agent`."""

from gym.config.schema import AgentConfig


class Config(AgentConfig):
    """Addresses that nobody in a sandbox should reach."""

    forbidden: list[str]
    """`host:port`; the host `gateway` is what the sandbox calls this machine."""
