"""The configuration of `scale_swe`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """Scale-SWE."""
