"""The configuration of `example_session_state_mgmt`."""

from gym.config.schema import ResourcesServerConfig


class Config(ResourcesServerConfig):
    """Nothing of its own, so that every key it does not know is an error."""
