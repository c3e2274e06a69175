"""The configuration of `swebench_pro`."""

from gym.swe.config import SweConfig


class Config(SweConfig):
    """SWE-bench Pro."""
