"""Hermes as an agent: it works in the task's sandbox with its own tools, and calls the rollout's model."""

from gym.harness.server import HarnessServer
from responses_api_agents.hermes_agent.adapter import Hermes
from responses_api_agents.hermes_agent.config import Config


class HermesAgent(HarnessServer):
    """One session is one conversation of Hermes."""

    config: Config

    def make_adapter(self) -> Hermes:
        """Hermes, as configured."""
        return Hermes(self.config)
