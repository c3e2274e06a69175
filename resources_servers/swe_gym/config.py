"""The configuration of `swe_gym`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """SWE-Gym."""
