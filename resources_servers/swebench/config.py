"""The configuration of `swebench`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """SWE-bench Verified and data sets of the same row format."""
