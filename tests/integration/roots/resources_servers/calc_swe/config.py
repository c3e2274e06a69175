"""The configuration of `calc_swe`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """The same as any SWE server's."""
