"""SWE-Gym: real issues of eleven Python repositories, judged by their own tests."""

from gym.swe.server import SweServer
from resources_servers.swe_gym.config import Config
from resources_servers.swe_gym.profile import SweGymProfile


class SweGymServer(SweServer):
    """The resources server of SWE-Gym."""

    config: Config
    profile = SweGymProfile()
