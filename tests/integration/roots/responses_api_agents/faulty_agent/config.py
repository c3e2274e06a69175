"""The configuration of `faulty_agent`."""

from pathlib import Path

from gym.config.schema import AgentConfig


class Config(AgentConfig):
    """Where events are written."""

    events: Path
