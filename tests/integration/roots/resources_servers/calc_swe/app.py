"""A SWE server for tests, which needs nothing beyond our own dependencies."""

from resources_servers.calc_swe.config import Config
from resources_servers.calc_swe.profile import PytestProfile

from gym.swe.server import SweServer


class CalcServer(SweServer):
    """The small test task."""

    config: Config
    profile = PytestProfile()
