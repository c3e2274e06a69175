"""R2E-Gym: issues made from commits of Python repositories, judged by hidden tests in the image."""

from gym.swe.server import SweServer
from resources_servers.r2e_gym.config import Config
from resources_servers.r2e_gym.profile import R2eGymProfile


class R2eGymServer(SweServer):
    """The resources server of R2E-Gym."""

    config: Config
    profile = R2eGymProfile()
