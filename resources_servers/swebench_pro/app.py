"""SWE-bench Pro: long issues of repositories in several languages, judged by each row's own scripts."""

from gym.swe.server import SweServer
from resources_servers.swebench_pro.config import Config
from resources_servers.swebench_pro.profile import SwebenchProProfile


class SwebenchProServer(SweServer):
    """The resources server of SWE-bench Pro."""

    config: Config
    profile = SwebenchProProfile()
