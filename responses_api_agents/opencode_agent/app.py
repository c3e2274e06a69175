"""OpenCode as an agent: it works in the task's sandbox with its own tools, and calls the rollout's model."""

from gym.harness.server import HarnessServer
from responses_api_agents.opencode_agent.adapter import OpenCode
from responses_api_agents.opencode_agent.config import Config


class OpenCodeAgent(HarnessServer):
    """One session is one `opencode run`."""

    config: Config

    def make_adapter(self) -> OpenCode:
        """OpenCode, as configured."""
        return OpenCode(self.config)
