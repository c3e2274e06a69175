"""The configuration of `faulty`."""

from pathlib import Path

from gym.config.schema import ResourcesServerConfig


class Config(ResourcesServerConfig):
    """Where events are written."""

    events: Path
