"""The configuration of `single_agent_turn_legacy`."""

from environment_servers.single_agent_turn.config import Config as SingleAgentTurnConfig


class Config(SingleAgentTurnConfig):
    """That of `single_agent_turn`."""
