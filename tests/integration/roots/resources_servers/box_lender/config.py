"""The configuration of `box_lender`."""

from gym.config.schema import ResourcesServerConfig


class Config(ResourcesServerConfig):
    """Which image, and made by whom."""

    image: str
    sandbox_provider: str = "sandbox"
    metadata: dict[str, str]
