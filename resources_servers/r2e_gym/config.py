"""The configuration of `r2e_gym`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """R2E-Gym."""
