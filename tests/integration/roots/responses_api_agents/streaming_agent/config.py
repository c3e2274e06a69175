"""The configuration of `streaming_agent`."""

from responses_api_agents.simple_agent.config import Config as SimpleConfig


class Config(SimpleConfig):
    """As `simple_agent`."""
