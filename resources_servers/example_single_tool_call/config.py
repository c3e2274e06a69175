"""The configuration of `example_single_tool_call`."""

from gym.config.schema import ResourcesServerConfig


class Config(ResourcesServerConfig):
    """Nothing of its own, so that every key it does not know is an error."""
