"""The base of agents: sessions around `/v1/responses`.

An author writes `respond`, and where the harness needs it `open_session` and `close_session`.
`one_activation` says whether a session is a harness that runs once (an identical repeat joins or
replays it, another body is a 409) or a loop that may be asked again.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

from gym.config.schema import AgentConfig, Kind, ServerRef
from gym.protocol import routes
from gym.protocol.access import SandboxAccess, ToolAccess
from gym.protocol.agents import AgentCloseSessionRequest, AgentCloseSessionResponse, AgentSeedSessionRequest
from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId, TaskId
from gym.protocol.responses import Response, ResponseCreateParams
from gym.sandbox.handles import BorrowedSandbox
from gym.servers.auth import CookieSigner
from gym.servers.base import RouteSpec, Server
from gym.servers.context import ServerContext
from gym.servers.http import Access, Answer, Call
from gym.servers.reaching import ReachChecks
from gym.servers.sessions import Session, SessionRegistry, digest

State = TypeVar("State")


class AgentSession(Session[State]):
    """One agent at work on one episode."""

    def __init__(
        self,
        session_id: str,
        episode_id: EpisodeId | None,
        task_id: TaskId | None,
        tool_accesses: tuple[ToolAccess, ...] = (),
        sandbox_access: SandboxAccess | None = None,
    ) -> None:
        super().__init__(session_id, episode_id, task_id)
        self.tool_accesses = tool_accesses
        self.sandbox_access = sandbox_access
        self.observations: dict[str, Any] | None = None
        """What the agent reports of its own work; evidence, never a reward."""
        self.resources_cookies: dict[str, str] | None = None
        """The resources server's cookies as the agent last saw them."""
        self.partial_response: Response | None = None
        """The work so far, for an agent that is stopped half-way."""
        self.trajectory: Any = None
        self.activation: bytes | None = None
        """The digest of the body that activated it first."""


class AgentServer(Server, Generic[State]):
    """Subclass this to add a harness; see docs/write-an-agent.md."""

    kind: ClassVar[Kind] = "responses_api_agents"
    config: AgentConfig
    one_activation: ClassVar[bool] = True

    def __init__(self, config: AgentConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self.sessions: SessionRegistry[State] = SessionRegistry(
            "agent session",
            ttl_seconds=config.session_ttl_seconds,
            receipt_seconds=config.session_receipt_seconds,
            finish=self._finish,
            keep_results=False,  # whoever closed the session has the response, or gave up on it
        )
        self._cookies = CookieSigner(context.credentials.secret, context.instance)
        self._reach = ReachChecks()

    async def open_session(self, session: AgentSession[State]) -> None:
        """Set up what the agent needs; a required grant that cannot be used must raise ContractError (422)."""

    async def respond(self, session: AgentSession[State], params: ResponseCreateParams, prefix: str) -> Response:
        """Act, and answer with everything that was said and done.

        `prefix` is the rollout prefix that model calls must be made under. Called in a task of
        its own that is cancelled when the session is closed.
        """
        raise ContractError(501, f"{type(self).__name__} does not act")

    async def close_session(self, session: AgentSession[State]) -> None:
        """Stop the harness for certain and fill in what the session reports. Raise if it may still be running.

        Runs however the session ends (closed, expired, at shutdown), once `open_session` has returned or has set `session.state`.
        """

    async def url_inside(self, session: AgentSession[State], box: BorrowedSandbox, target: ServerRef | str) -> str:
        """The base URL that code in the session's sandbox `box` calls an instance by; see `ServerContext.published_url`.

        Before it is first given out for a provider block, it is called from inside (`check_reach`). Raises ContractError,
        terminal where there is no way. Model calls go below the rollout's prefix, with `credentials.rollout_token`.
        """
        if session.sandbox_access is None:
            raise ContractError(422, f"{self.context.instance} was given no sandbox")
        block = session.sandbox_access.connection.provider_config_ref
        url = self.context.published_url(target, block)
        if self.config.check_reach:
            parts = urlsplit(url)
            await self._reach.check(block, f"{parts.scheme}://{parts.netloc}", box)
        return url

    def route_specs(self) -> list[RouteSpec]:
        """The contract's routes."""
        return [
            RouteSpec(routes.AGENT_SESSIONS, self._open, Access.CONTROL, broken="agent_run_error"),
            RouteSpec(routes.CLOSE_AGENT_SESSION, self._close, Access.CONTROL),
            RouteSpec(routes.RESPONSES, self._responses, Access.CONTROL, under_rollout=True, broken="agent_run_error"),
        ]

    def background(self) -> list[Any]:
        """The sweeper of expired sessions."""
        return [self.sessions.sweep_forever()]

    async def stop(self) -> None:
        """Close every session that is still open."""
        await self.sessions.close_all()

    def status(self) -> dict[str, Any]:
        """The number of open sessions."""
        return {"sessions": len(self.sessions)}

    async def _open(self, call: Call) -> Answer:
        self.refuse_while_draining()
        request = call.parse(AgentSeedSessionRequest)
        session = AgentSession[State](
            request.agent_session_id, request.episode_id, request.task_id, tuple(request.tool_accesses), request.sandbox_access
        )

        async def build(opened: Session[State]) -> dict[str, str]:
            await self.open_session(session)
            return {"agent_session_id": session.id}

        reply = await self.sessions.open(session, digest(call.body), build)
        return Answer(reply, cookies={self._cookies.name: self._cookies.sign(session.id)})

    async def _responses(self, call: Call) -> Response:
        params = call.parse(ResponseCreateParams)
        if params.stream:
            raise ContractError(422, f"{self.context.instance} does not stream: leave 'stream' out or false")
        value = call.cookie(self._cookies.name)
        session_id = self._cookies.read(value)
        if session_id is None:
            reason = "needs the session cookie that /v1/agent_sessions set" if value is None else "got a session cookie of another run"
            raise ContractError(401, f"{call.path} {reason}")
        prefix = "" if call.capture_key is None else routes.rollout_prefix(call.capture_key, token_capture=call.token_capture)
        episode_id = self.sessions.episode_of(session_id)
        if episode_id is not None and call.capture_key not in (None, episode_id.capture_key):
            raise ContractError(409, f"agent session {session_id} belongs to {episode_id.capture_key}, not to {call.capture_key}")
        key = digest(call.body)
        if self.one_activation and self.sessions.is_open(session_id):
            session = self.sessions.get(session_id)
            assert isinstance(session, AgentSession)
            session.activation = session.activation or key
            if session.activation != key:
                raise ContractError(409, f"agent session {session_id} runs once, and was already activated with another body")

        async def run(session: Session[State]) -> Response:
            assert isinstance(session, AgentSession)
            return await self.respond(session, params, prefix)

        return await self.sessions.once(session_id, key, run)

    async def _close(self, call: Call) -> Mapping[str, Any]:
        request = call.parse(AgentCloseSessionRequest)
        reply = await self.sessions.close(request.agent_session_id, request.episode_id)
        if reply is None:
            return {"agent_session_id": request.agent_session_id}
        return {key: value for key, value in reply.model_dump(mode="json", exclude_unset=True).items() if value is not None}

    async def _finish(self, session: Session[State]) -> AgentCloseSessionResponse:
        assert isinstance(session, AgentSession)
        await self.close_session(session)
        return AgentCloseSessionResponse(
            agent_session_id=session.id,
            agent_observations=session.observations,
            resources_cookies=session.resources_cookies,
            partial_response=session.partial_response,
            agent_trajectory=session.trajectory,
        )
