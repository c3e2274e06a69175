"""SWE-bench Verified: real issues of real repositories, judged by their own tests."""

from gym.swe.server import SweServer
from resources_servers.swebench.config import Config
from resources_servers.swebench.profile import SwebenchProfile


class SwebenchServer(SweServer):
    """The resources server of SWE-bench Verified."""

    config: Config
    profile = SwebenchProfile()
