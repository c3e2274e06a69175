"""`single_agent_turn` for callers that send flat rows: a row becomes an episode, and the episode's end a row.

Invariant: what happens in between is `single_agent_turn`'s, so that the row's fields reach the resources server alone and the
agent sees `responses_create_params`. An episode is taken and answered as there.
"""

from collections.abc import Mapping
from typing import Any, cast

from environment_servers.single_agent_turn.app import SingleAgentTurnServer
from environment_servers.single_agent_turn_legacy.config import Config
from gym.protocol.errors import ContractError
from gym.tasks.flat_rows import episode_of_row, is_episode, row_of_answer
from gym.tasks.materialize import TaskError


class SingleAgentTurnLegacyServer(SingleAgentTurnServer):
    """The environment server of single-agent tasks that come as flat rows."""

    config: Config

    async def run(self, body: Any) -> dict[str, Any]:
        """One episode from a body of either form to an answer of the same. Raises ContractError if the body names no episode."""
        if is_episode(body):
            return await super().run(body)
        if not isinstance(body, dict):
            raise ContractError(422, "the body of /run must be an object: a flat row, or an episode")
        row = cast("dict[str, Any]", body)
        self._check_addressed_here(row)
        try:
            request = episode_of_row(row, taskset=row.get("task_source") or self.config.resources_server.name)
        except TaskError as error:
            raise ContractError(422, f"the body of /run is no task: {error}") from error
        return {**row_of_answer(await super().run(request)), "agent_ref": self.config.agent_server.model_dump()}

    def _check_addressed_here(self, row: dict[str, Any]) -> None:
        """A row that names another source or agent was sent to the wrong server. Raises ContractError."""
        agent = self.config.agent_server.name
        known = (self.config.resources_server.name, agent, self.context.instance)
        source, reference = row.get("task_source"), row.get("agent_ref")
        if source is not None and source not in known:
            raise ContractError(422, f"task_source names {source!r}, which {self.context.instance} does not serve (it serves {known[0]})")
        named: Any = reference.get("name") if isinstance(reference, Mapping) else reference
        if named is not None and named != agent:
            raise ContractError(422, f"agent_ref names {named!r}, but {self.context.instance} runs {agent!r}")
