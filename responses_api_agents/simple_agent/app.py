"""The tool loop: ask the model, run the tools it calls, tell it what they answered, until it is done.

What a tool answers with an error, and arguments that are no JSON, go back to the model as the
tool's output: mistakes of the policy are the policy's to mend. A tool server that is out of reach
fails the episode, since nothing was measured.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from gym.client import CallError, Peer
from gym.protocol import routes
from gym.protocol.access import DirectHTTPToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.failures import BUDGET_EXHAUSTED
from gym.protocol.responses import Item, Response, ResponseCreateParams, add_usage, function_call_output, function_calls
from gym.servers import AgentServer, AgentSession
from gym.servers.context import for_episode
from responses_api_agents.simple_agent.config import Config

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass
class Loop:
    """What a session's activations share."""

    tools: Peer | None = None
    cookies: dict[str, str] = field(default_factory=dict[str, str])
    output: list[Item] = field(default_factory=list[Item])
    usage: dict[str, Any] | None = None
    last: Response | None = None
    acting: bool = False
    """Whether the last activation has not come to its end."""


class SimpleAgent(AgentServer[Loop]):
    """The agent of environments whose tools are plain HTTP. A session may be activated several times."""

    config: Config
    one_activation = False

    async def open_session(self, session: AgentSession[Loop]) -> None:
        """Take the session's one direct HTTP grant; whatever else is required cannot be served."""
        session.state = Loop()
        grants = [access for access in session.tool_accesses if isinstance(access, DirectHTTPToolAccess)]
        unusable = [access.name for access in session.tool_accesses if access.required and access not in grants]
        if unusable or len(grants) > 1:
            names = ", ".join(unusable or [grant.name for grant in grants])
            raise ContractError(422, f"simple_agent uses one direct_http grant and no MCP, but was given {names}")
        if grants:
            session.state.tools = Peer(
                grants[0].name, grants[0].base_url, self.context.transport, headers=grants[0].headers | for_episode(session.episode_id)
            )
            session.state.cookies = dict(grants[0].cookies)

    async def respond(self, session: AgentSession[Loop], params: ResponseCreateParams, prefix: str) -> Response:
        """Loop until the model calls no tool, cannot go on, or `max_steps` is reached; one activation of a session after the other."""
        async with session.lock:
            session.state.acting = True
            response = await self._loop(session.state, params, prefix)
            session.state.acting = False
            return response

    async def _loop(self, loop: Loop, params: ResponseCreateParams, prefix: str) -> Response:
        loop.output, loop.usage, loop.last = [], None, None
        model = self.context.peer(self.config.model_server)
        body = params.model_dump(mode="json", exclude_unset=True)
        items = params.input_items()
        offered = {str(entry.get("name")) for entry in params.tools or [] if entry.get("type") == "function"}
        steps = 0
        while True:
            try:
                reply = await model.post(routes.RESPONSES, {**body, "input": items}, timeout=None, prefix=prefix)
            except CallError as error:
                # Out of budget in the midst of the work: what stands is the answer.
                if error.kind != BUDGET_EXHAUSTED or loop.last is None:
                    raise
                return self._result(loop, incomplete=BUDGET_EXHAUSTED)
            steps += 1
            answer = self._read(reply.body, model.name)
            loop.last = answer
            loop.output += answer.output
            loop.usage = add_usage(loop.usage, answer.usage)
            calls = function_calls(answer.output)
            if answer.incomplete_details is not None or not calls:
                return self._result(loop)
            if self.config.max_steps is not None and steps >= self.config.max_steps:
                return self._result(loop, incomplete="max_steps")
            items = [*items, *answer.output]
            for call in calls:  # in the order given: they may act on the same state
                result = await self._call(loop, call, offered)
                loop.output.append(result)
                items.append(result)

    async def close_session(self, session: AgentSession[Loop]) -> None:
        """The loop was cancelled by now; report what it had done, and the tools' cookies."""
        loop = session.state
        session.resources_cookies = loop.cookies or None
        if loop.last is not None:
            session.partial_response = self._result(loop, incomplete="agent_closed" if loop.acting else None)

    async def _call(self, loop: Loop, call: Item, offered: set[str]) -> Item:
        call_id = str(call.get("call_id") or call.get("id") or "")
        name = str(call.get("name"))
        if name not in offered or not _TOOL_NAME.fullmatch(name):
            return _error(call_id, f"there is no tool {name!r}; there are: {', '.join(sorted(offered)) or 'none'}")
        if loop.tools is None:
            reason = f"the task offers tool {name!r}, but this session was granted no tools (resources_tool_transports: [direct_http])"
            raise ContractError(422, reason)
        try:
            arguments = orjson.loads(call.get("arguments") or "{}")
        except orjson.JSONDecodeError as error:
            return _error(call_id, f"the arguments are not valid JSON: {error}")
        if not isinstance(arguments, dict):
            return _error(call_id, "the arguments must be a JSON object")
        try:
            reply = await loop.tools.post(f"/{name}", arguments, timeout=None, cookies=loop.cookies)
        except CallError as error:
            # No reply, or one from a server that is not there or refuses our session, says nothing about the policy.
            if error.status is None or error.status in (401, 410, 502, 503, 504) or error.kind == "session_lost":
                raise
            return _error(call_id, error.message)
        loop.cookies.update(reply.cookies)
        return function_call_output(call_id, reply.body.decode(errors="replace"))

    def _read(self, body: bytes, model: str) -> Response:
        try:
            answer = Response.model_validate(orjson.loads(body))
        except ValueError as error:
            piece = body[:120].decode(errors="replace")
            reason = f"{model} answered with something that is no Responses object: {piece!r}"
            raise ContractError(502, reason, kind="agent_request_failed") from error
        if answer.status in ("failed", "cancelled"):
            said = (answer.error or {}).get("message") or "no reason given"
            raise ContractError(502, f"{model} answered with a response that {answer.status}: {said}", kind="agent_request_failed")
        return answer

    def _result(self, loop: Loop, incomplete: str | None = None) -> Response:
        assert loop.last is not None
        changes: dict[str, Any] = {"output": loop.output, "usage": loop.usage}
        if incomplete is not None:
            changes |= {"status": "incomplete", "incomplete_details": {"reason": incomplete}}
        return loop.last.model_copy(update=changes)


def _error(call_id: str, message: str) -> Item:
    return function_call_output(call_id, orjson.dumps({"error": message}).decode())
