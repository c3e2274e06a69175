"""The relay to agents that run whole rollouts by themselves, by a `/run` of their own.

A flat row goes to the agent as it came, and the agent's reply comes back as it is: body, status, cookies, rollout prefix. An
episode goes as its flat row, and the agent's row is its result. Invariant: an agent that is down, breaks or answers with no
rollout is a failure, never a reward. What a rollout opened is its agent's to close: it ends when the relay's request does.
"""

import asyncio
from dataclasses import replace
from typing import Any

from environment_servers.legacy_agent.config import Config
from gym.client import Reply
from gym.protocol import routes
from gym.protocol.environments import SingleAgentTurnTaskInput
from gym.protocol.errors import ContractError
from gym.protocol.rollouts import FAILURE_CLASS, NO_PERSIST
from gym.servers import EnvironmentServer, Episode
from gym.servers.base import RouteSpec
from gym.servers.http import Answer, Call
from gym.servers.replies import check_verdict, object_of
from gym.tasks.flat_rows import is_episode, row_of_episode

_OURS = {"authorization", "content-length", "content-type", "host"}
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "accept-encoding"}
_NOT_RETURNED = {"content-length", "content-type", "content-encoding", "set-cookie", "server", "date"}


class LegacyAgentServer(EnvironmentServer[SingleAgentTurnTaskInput]):
    """The environment server of agents that need none."""

    config: Config
    task_input_model = SingleAgentTurnTaskInput
    _relaying = 0

    def route_specs(self) -> list[RouteSpec]:
        """`/run` below a rollout's prefix too: it is passed on with the rest."""
        return [replace(spec, under_rollout=spec.path == routes.RUN) for spec in super().route_specs()]

    async def answer(self, call: Call) -> Any:
        """Run an episode, or relay a flat row."""
        if is_episode(call.json()):
            return await super().answer(call)
        self._relaying += 1
        try:
            reply = await self._relay(call)
        finally:
            self._relaying -= 1
        headers = {name: value for name, value in reply.headers.items() if name not in _HOP_BY_HOP | _NOT_RETURNED}
        return Answer(reply.body, reply.status, cookies=reply.cookies, headers=headers)

    async def run_episode(self, episode: Episode[SingleAgentTurnTaskInput]) -> dict[str, Any]:
        """Have the agent run it; its row is the result, also where the row says of itself that it failed."""
        episode.stage = "agent"
        agent = self.context.peer(self.config.agent_server, episode.id)
        row = row_of_episode(episode.id, episode.task_id, episode.task_input)
        result = object_of(await agent.post(routes.RUN, row, timeout=None), agent.name)
        if not (FAILURE_CLASS in result or NO_PERSIST in result or result.get("mask_sample") is True):
            check_verdict(agent.name, result)
        return result

    async def aggregate_metrics(self, call: Call) -> Any:
        """The benchmark's own metrics are the agent's to tell."""
        reply = await self.context.peer(self.config.agent_server).post(routes.AGGREGATE_METRICS, call.body, timeout=None)
        return Answer(reply.body)

    def running_count(self) -> int:
        """Episodes and rows on their way."""
        return super().running_count() + self._relaying

    async def _relay(self, call: Call) -> Reply:
        """The agent's reply, whatever its status. Raises CallError without one, ContractError (504) after the time of an episode."""
        info = self.context.info(self.config.agent_server)
        headers = {name: value for name, value in call.headers.items() if name not in _OURS | _HOP_BY_HOP}
        headers |= {"content-type": "application/json", **info.call_headers(self.context.credentials)}
        limit = self.config.default_episode_timeout_seconds
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                return await self.context.transport.send("POST", f"{info.url}{call.path}", headers, call.body)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            reason = f"{info.name} did not answer within default_episode_timeout_seconds ({limit:g} s)"
            raise ContractError(504, reason, kind="transport_timeout", terminal=False) from error
