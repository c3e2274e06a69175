"""Scale-SWE: issues of Python repositories, judged by their own tests and a written one."""

from gym.swe.server import SweServer
from resources_servers.scale_swe.config import Config
from resources_servers.scale_swe.profile import ScaleSweProfile


class ScaleSweServer(SweServer):
    """The resources server of Scale-SWE."""

    config: Config
    profile = ScaleSweProfile()
