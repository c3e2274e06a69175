"""What a server author subclasses: one base for each of the four kinds of server.

    from gym.servers import ResourcesServer, ResourcesSession, tool

Importing this package imports no HTTP client and no web server.
"""

from gym.protocol.verdicts import Masked, Scored, Verdict
from gym.servers.agents import AgentServer, AgentSession
from gym.servers.context import ServerContext
from gym.servers.environment import EnvironmentServer, Episode
from gym.servers.http import parse
from gym.servers.models import ModelServer
from gym.servers.resources import ResourcesServer, ResourcesSession
from gym.servers.tools import tool

__all__ = [
    "AgentServer",
    "AgentSession",
    "EnvironmentServer",
    "Episode",
    "Masked",
    "ModelServer",
    "ResourcesServer",
    "ResourcesSession",
    "Scored",
    "ServerContext",
    "Verdict",
    "parse",
    "tool",
]
