"""One agent takes one turn at one task.

The order: register resources close, seed, register agent close, open the agent session, the agent's
`/v1/responses`, close the agent, close the record of its model calls, verify, close the resources
session. The agent is closed, and its close has succeeded, before anything is verified. Grader fields go to the resources server
only; the agent sees `responses_create_params`.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from environment_servers.single_agent_turn.config import Config
from gym.client import CallError
from gym.protocol import routes
from gym.protocol.access import DirectHTTPToolAccess, MCPConnection, MCPToolAccess, ToolAccess
from gym.protocol.agents import AgentCloseSessionResponse, AgentSeedSessionRequest, AgentSeedSessionResponse
from gym.protocol.environments import SingleAgentTurnTaskInput
from gym.protocol.errors import ContractError
from gym.protocol.failures import BUDGET_EXHAUSTED, MODEL_FAILED, EpisodeFailure
from gym.protocol.ids import EpisodeId, new_agent_session_id, new_resources_session_id
from gym.protocol.resources import ResourcesSeedSessionResponse
from gym.protocol.responses import Response
from gym.protocol.rollouts import MODEL_CALLS
from gym.servers import EnvironmentServer, Episode
from gym.servers.environment import EpisodeFailed
from gym.servers.http import Answer, Call
from gym.servers.replies import broken, check_verdict, object_of, parsed
from gym.servers.rollout_capture import RolloutCapture

_CALL_SECONDS: float | None = None
"""Calls have no bound of their own: the episode's deadline is around them all."""


class SingleAgentTurnServer(EnvironmentServer[SingleAgentTurnTaskInput]):
    """The environment server of single-agent tasks."""

    config: Config
    task_input_model = SingleAgentTurnTaskInput

    async def run_episode(self, episode: Episode[SingleAgentTurnTaskInput]) -> dict[str, Any]:
        """Seed, act, close the agent, verify, close the task."""
        task = episode.task_input
        params = task.responses_create_params.model_dump(mode="json", exclude_unset=True)
        resources = self.context.peer(self.config.resources_server, episode.id)
        episode_id = episode.id.model_dump()

        episode.stage = "seed"
        resources_session_id = new_resources_session_id()
        close_body = {"resources_session_id": resources_session_id, "episode_id": episode_id}
        self.owe_close(episode, resources.name, routes.CLOSE_SESSION, close_body, resources_session_id)
        seed_body = {**close_body, "task_id": episode.task_id.model_dump(), "task_data": task.task_data}
        reply = await resources.post(routes.SEED_SESSION, seed_body, timeout=_CALL_SECONDS)
        seeded = parsed(ResourcesSeedSessionResponse, reply, resources.name)
        _check_echo(resources.name, resources_session_id, seeded.resources_session_id, reply.cookies)

        cookies = dict(reply.cookies)
        agent = await self._act(episode, params, seeded, self._tool_accesses(seeded, cookies), cookies)

        episode.stage = "verification"
        verify_body = {**task.task_data, "responses_create_params": params, "response": agent.response}
        reply = await resources.post(routes.VERIFY, verify_body, timeout=_CALL_SECONDS, cookies=agent.resources_cookies)
        result = object_of(reply, resources.name)
        check_verdict(resources.name, result)
        episode.stage = "cleanup"
        return agent.capture.complete({**result, **agent.extra})

    async def aggregate_metrics(self, call: Call) -> Any:
        """The benchmark's own metrics are its resources server's."""
        reply = await self.context.peer(self.config.resources_server).post(routes.AGGREGATE_METRICS, call.body, timeout=None)
        return Answer(reply.body)

    async def _act(
        self,
        episode: Episode[SingleAgentTurnTaskInput],
        params: dict[str, Any],
        seeded: ResourcesSeedSessionResponse,
        tool_accesses: list[ToolAccess],
        cookies: dict[str, str],
    ) -> "_Acted":
        """Open an agent session, have it act, and close it. Raises EpisodeFailed if the agent cannot be closed for certain."""
        info = self.context.info(self.config.agent_server)
        agent = self.context.peer(self.config.agent_server, episode.id)
        episode.stage = "agent"
        agent_session_id = new_agent_session_id()
        close_body = {"agent_session_id": agent_session_id, "episode_id": episode.id.model_dump()}

        def keep_partial(closed: Any) -> None:
            partial = closed.get("partial_response") if isinstance(closed, dict) else None
            if isinstance(partial, dict) and episode.partial.get("partial_response") is None:
                episode.partial["partial_response"] = partial

        capture = RolloutCapture(self.context, info, episode.id, agent_session_id, self.used_keys)

        async def close_capture() -> None:
            await capture.close(episode.partial.get("partial_response"))
            episode.partial[MODEL_CALLS] = capture.row

        episode.cleanup.register(f"the model calls of {agent_session_id}", close_capture)
        close_agent = self.owe_close(episode, agent.name, routes.CLOSE_AGENT_SESSION, close_body, agent_session_id, keep_partial)
        await capture.open()
        request = AgentSeedSessionRequest(
            agent_session_id=agent_session_id,
            episode_id=episode.id,
            task_id=episode.task_id,
            tool_accesses=tool_accesses,
            sandbox_access=seeded.sandbox_access,
        )
        reply = await agent.post(routes.AGENT_SESSIONS, request.model_dump(mode="json"), timeout=_CALL_SECONDS)
        opened = parsed(AgentSeedSessionResponse, reply, agent.name)
        _check_echo(agent.name, agent_session_id, opened.agent_session_id, reply.cookies)

        response: dict[str, Any] | None = None
        began = time.time()
        limit = asyncio.timeout(episode.task_input.agent_timeout_seconds)
        try:
            async with limit:
                answer = await agent.post(routes.RESPONSES, params, timeout=None, prefix=capture.prefix, cookies=reply.cookies)
            response = object_of(answer, agent.name)
            _check_response(agent.name, response)
            episode.partial["partial_response"] = response
            _check_ended_well(agent.name, response)
        except TimeoutError:
            if not limit.expired():
                raise
        except (CallError, ContractError):
            await capture.close(None)
            _check_model(capture)
            if not capture.budget_exhausted:
                raise
            response = None  # it failed for want of model calls: what stands is graded
        episode.partial["partial_response"] = response
        ended = time.time()

        episode.stage = "cleanup"
        try:
            closed = AgentCloseSessionResponse.model_validate(await close_agent.close())
        except (CallError, ContractError, TimeoutError, ValidationError) as error:
            raise EpisodeFailed(_unclosed(agent.name, error, self.config.cleanup_timeout_seconds)) from error
        extra: dict[str, Any] = {}
        if closed.agent_observations is not None:
            extra["ng_agent_observations"] = closed.agent_observations
        if closed.agent_trajectory is not None:
            extra["ng_trajectory"] = closed.agent_trajectory
        if limit.expired():
            extra |= {"agent_timed_out": True, "agent_timeout_seconds": episode.task_input.agent_timeout_seconds}
        if response is None:
            partial = closed.partial_response
            response = partial.model_dump(mode="json", exclude_unset=True) if partial else _empty_response(episode.id, limit.expired())
        episode.partial["partial_response"] = response
        await capture.close(response)
        _check_model(capture)
        out_of_time = limit.expired() or (response.get("incomplete_details") or {}).get("reason") == "agent_timeout"
        if out_of_time and not capture.budget_exhausted and (failure := capture.unserved(began, ended)):
            raise EpisodeFailed(failure)
        if capture.budget_exhausted:
            extra[BUDGET_EXHAUSTED] = True
        if response.get("usage") is None and capture.usage is not None:
            response = episode.partial["partial_response"] = {**response, "usage": capture.usage}
        return _Acted(response, cookies if closed.resources_cookies is None else closed.resources_cookies, extra, capture)

    def _tool_accesses(self, seeded: ResourcesSeedSessionResponse, cookies: dict[str, str]) -> list[ToolAccess]:
        """What the agent gets of the tools. Raises ContractError, terminal, where the server does not offer what is asked for."""
        info = self.context.info(self.config.resources_server)
        accesses: list[ToolAccess] = []
        if "direct_http" in self.config.resources_tool_transports:
            name = f"{info.name}.direct_http"
            accesses.append(DirectHTTPToolAccess(name=name, required=True, base_url=info.url, cookies=cookies, headers=dict(info.headers)))
        if "mcp" in self.config.resources_tool_transports:
            if seeded.resources_tools is None:
                reason = "offers no tools over MCP, but resources_tool_transports asks for them: set expose_tools_over_mcp on it"
                raise broken(f"{info.name} {reason}")
            tools = seeded.resources_tools
            if any(access.name == tools.server_name for access in accesses):
                raise broken(f"{info.name} calls its MCP server {tools.server_name}, which is the name of its other grant")
            connection = MCPConnection(url=f"{info.url}{tools.url_path}", headers={**info.headers, **tools.headers})
            accesses.append(MCPToolAccess(name=tools.server_name, required=True, connection=connection))
        return accesses


@dataclass(frozen=True, slots=True)
class _Acted:
    """What came of the agent's turn; `extra` goes into the result."""

    response: dict[str, Any]
    resources_cookies: dict[str, str]
    extra: dict[str, Any]
    capture: RolloutCapture


def _check_echo(name: str, sent: str, echoed: str, cookies: Mapping[str, str]) -> None:
    if echoed != sent:
        raise broken(f"{name} answered for session {echoed!r} in place of {sent!r}")
    if not cookies:
        raise broken(f"{name} set no session cookie")


def _check_response(name: str, response: dict[str, Any]) -> None:
    try:
        Response.model_validate(response)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise broken(f"{name} answered with an invalid response: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def _check_ended_well(name: str, response: dict[str, Any]) -> None:
    """An agent that says of itself that it failed has left nothing that measures the policy."""
    if response.get("status") in ("failed", "cancelled"):
        error = response.get("error") or {}
        said = error.get("message") or error.get("code") or "no reason given"
        raise ContractError(
            502, f"{name} answered with a response that {response['status']}: {said}", kind="agent_run_error", terminal=False
        )


def _check_model(capture: RolloutCapture) -> None:
    """What was done without a model measures nothing, whatever the agent says of it."""
    if capture.failed is not None:
        raise EpisodeFailed(EpisodeFailure(failure_reason=capture.failed, terminal=False, failure_kind=MODEL_FAILED, stage="agent"))


def _unclosed(name: str, error: Exception, bound: float) -> EpisodeFailure:
    reason = f"no answer within {bound:g} s" if isinstance(error, TimeoutError) else str(error)
    terminal = error.terminal if isinstance(error, (CallError, ContractError)) else False
    return EpisodeFailure(
        failure_reason=f"the agent session could not be closed, so nothing was verified: {name}: {reason}",
        terminal=terminal,
        failure_kind="session_release_failed",
        stage="cleanup",
    )


def _empty_response(episode: EpisodeId, timed_out: bool) -> dict[str, Any]:
    """Stands for an agent that was stopped before it said anything."""
    reason = "agent_timeout" if timed_out else BUDGET_EXHAUSTED
    return {
        "id": f"{reason.replace('_', '-')}-{episode.capture_key}",
        "object": "response",
        "created_at": 0.0,
        "model": "",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "output": [],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "metadata": {"agent_timed_out": str(timed_out).lower(), "response_source": "environment_server"},
    }
