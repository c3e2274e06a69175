"""An agent for tests: does what its request's metadata says, and writes down everything that it was given."""

import asyncio
import os
from typing import Any

import orjson
from responses_api_agents.faulty_agent.config import Config

from gym.client import Peer
from gym.protocol.access import DirectHTTPToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.servers import AgentServer, AgentSession


class FaultyAgent(AgentServer[dict[str, Any]]):
    """Metadata may say: do (answer, hang, fail, slow), open_seconds, close_failures, close_seconds; values are text."""

    config: Config

    def note(self, what: str, session: AgentSession[dict[str, Any]], **more: Any) -> None:
        """Append an event."""
        episode = session.episode_id.capture_key if session.episode_id is not None else None
        line = orjson.dumps({"what": what, "episode": episode, **more}, option=orjson.OPT_APPEND_NEWLINE)
        file = os.open(self.config.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line)
        os.close(file)

    async def open_session(self, session: AgentSession[dict[str, Any]]) -> None:
        """Be given things."""
        session.state = {}
        grants = [grant.model_dump(mode="json") for grant in session.tool_accesses]
        self.note("agent opened", session, grants=grants, task=session.task_id.model_dump() if session.task_id else None)

    async def respond(self, session: AgentSession[dict[str, Any]], params: ResponseCreateParams, prefix: str) -> Response:
        """Touch the tools, and end as the metadata says."""
        session.state = dict(params.metadata or {})
        self.note("agent acts", session, params=params.model_dump(mode="json", exclude_unset=True), prefix=prefix)
        response = Response(id="resp_agent", status="completed", output=[assistant_message("I did it.")])
        session.partial_response = response.model_copy(update={"status": "incomplete"})
        for grant in session.tool_accesses:
            if isinstance(grant, DirectHTTPToolAccess):
                tools = Peer(grant.name, grant.base_url, self.context.transport, headers=grant.headers)
                await tools.post("/touch", {"number": 1}, timeout=10, cookies=grant.cookies)
        what = session.state.get("do", "answer")
        if what == "hang":
            await asyncio.get_running_loop().create_future()
        if what == "fail":
            raise ContractError(500, "the agent was told to fail", kind="agent_run_error", terminal=False)
        if what == "timeout":
            raise ContractError(504, "the model did not answer", kind="transport_timeout", terminal=False)
        await asyncio.sleep(float(session.state.get("seconds", 0)))
        return response

    async def close_session(self, session: AgentSession[dict[str, Any]]) -> None:
        """End as the metadata says."""
        await asyncio.sleep(float(session.state.get("close_seconds", 0)))
        if int(session.state.get("close_failures", 0)) > 0:
            session.state["close_failures"] = int(session.state["close_failures"]) - 1
            self.note("agent close failed", session)
            raise OSError("the harness does not stop")
        self.note("agent closed", session)
        session.observations = {"seen": True}
