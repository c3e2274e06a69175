"""Deprecated: OpenCode as an agent that runs whole rollouts by a `/run` of its own, the target of the `legacy_agent` relay.

It is `opencode_agent`, and its `/run` is that of `single_agent_turn_legacy` in this process, with this agent and its resources
server for peers: the order of calls, the cleanup and the harness are those of sessions, and only the defaults differ.
"""

import logging
from typing import Any

from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyServer
from environment_servers.single_agent_turn_legacy.config import Config as EpisodesConfig
from gym.config.schema import AgentConfig, AgentRef
from gym.servers.base import RouteSpec
from gym.servers.context import ServerContext
from responses_api_agents.opencode_agent.app import OpenCodeAgent
from responses_api_agents.opencode_sandboxed_agent.config import Config

log = logging.getLogger("gym.harness")


class OpenCodeSandboxedAgent(OpenCodeAgent):
    """OpenCode with the environment server of its own rollouts."""

    config: Config

    def __init__(self, config: AgentConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        bounds = {name: getattr(config, name) for name in ("default_episode_timeout_seconds", "cleanup_timeout_seconds")}
        own = AgentRef(type="responses_api_agents", name=context.instance)
        self._rollouts = SingleAgentTurnLegacyServer(
            EpisodesConfig(resources_server=self.config.resources_server, agent_server=own, **bounds), context
        )

    def route_specs(self) -> list[RouteSpec]:
        """An agent's routes, and those of an environment server."""
        return [*super().route_specs(), *self._rollouts.route_specs()]

    async def start(self) -> None:
        """Say that there is a successor."""
        log.warning(
            "%s: opencode_sandboxed_agent is deprecated, and kept to reproduce old results: use opencode_agent with single_agent_turn",
            self.context.instance,
        )
        await super().start()
        await self._rollouts.start()

    def background(self) -> list[Any]:
        """An agent's work and an environment server's."""
        return [*super().background(), *self._rollouts.background()]

    async def wind_up(self) -> None:
        """Cancel the rollouts while this agent still answers their closes."""
        await self._rollouts.wind_up()

    async def stop(self) -> None:
        """End the rollouts, then the sessions."""
        await self._rollouts.stop()
        await super().stop()

    def running_count(self) -> int:
        """Rollouts that are running."""
        return self._rollouts.running_count()

    def status(self) -> dict[str, Any]:
        """Open sessions, and running rollouts with their stages."""
        return {**super().status(), **self._rollouts.status()}
