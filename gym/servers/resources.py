"""The base of resources servers: a task's state, tools, sandbox and verdict.

An author writes `seed`, the tools, `verify` and, where there is something to give back,
`session.on_release(...)`; sessions, cookies, idempotence, verdict caching and the two forms of
the wire are here.
"""

from typing import Any, ClassVar, Generic, TypeVar, cast

from gym.config.schema import Kind, ResourcesServerConfig
from gym.protocol import routes
from gym.protocol.access import MCPServerMetadata, SandboxAccess
from gym.protocol.errors import ContractError
from gym.protocol.ids import new_resources_session_id
from gym.protocol.resources import (
    BaseVerifyRequest,
    ResourcesCloseSessionRequest,
    ResourcesSeedSessionRequest,
    ResourcesVerifyRequest,
    ReverifyMode,
)
from gym.protocol.responses import Item
from gym.protocol.verdicts import LOST_SESSION, Masked, Verdict, verdict_to_wire
from gym.servers.auth import CookieSigner, SessionSigner
from gym.servers.base import RouteSpec, Server
from gym.servers.context import ServerContext
from gym.servers.http import Access, Answer, Call, Handler, parse
from gym.servers.mcp import ToolsOverMCP
from gym.servers.sessions import Session, SessionRegistry, digest
from gym.servers.tools import Tool, tools_of

State = TypeVar("State")


class ResourcesSession(Session[State]):
    """One task being worked on. `state` is the server's own; `seed` sets it."""

    sandbox_access: SandboxAccess | None = None
    """Lent to the agent with the answer to the seed."""
    resources_tools: MCPServerMetadata | None = None


class ResourcesServer(Server, Generic[State]):
    """Subclass this to write an environment; see docs/write-an-environment.md."""

    kind: ClassVar[Kind] = "resources_servers"
    config: ResourcesServerConfig

    def __init__(self, config: ResourcesServerConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self.sessions: SessionRegistry[State] = SessionRegistry(
            "resources session", ttl_seconds=config.session_ttl_seconds, receipt_seconds=config.session_receipt_seconds
        )
        self._cookies = CookieSigner(context.credentials.secret, context.instance)
        self._mcp_tokens = SessionSigner(context.credentials.secret, context.instance, "mcp")

    async def seed(self, session: ResourcesSession[State], task_data: dict[str, Any]) -> None:
        """Set up the task: usually set `session.state`. `task_data` holds the row's fields, the grader's included."""

    async def verify(self, session: ResourcesSession[State] | None, request: BaseVerifyRequest) -> Verdict:
        """Judge what the agent did. `session` is None only if none was ever opened (re-verification).

        Answer `Masked` where nothing could be measured; an exception fails the episode, it is never a zero.
        """
        raise ContractError(501, f"{type(self).__name__} does not verify")

    def lost_fields(self, request: BaseVerifyRequest) -> dict[str, Any]:
        """The benchmark's own fields of a verdict on a session that is gone."""
        return {}

    def aggregate_metrics(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Metrics of the benchmark's own over verified rows, besides those that the collector computes."""
        return {}

    def route_specs(self) -> list[RouteSpec]:
        """The contract's routes, and one for each tool."""
        control = [
            RouteSpec(routes.SEED_SESSION, self._seed, Access.CONTROL),
            RouteSpec(routes.VERIFY, self._verify, Access.CONTROL, broken="verifier_error"),
            RouteSpec(routes.CLOSE_SESSION, self._close, Access.CONTROL),
            RouteSpec(routes.AGGREGATE_METRICS, self._aggregate_metrics, Access.CONTROL),
            RouteSpec(routes.REVERIFY_MODE, self._reverify_mode, Access.CONTROL, "GET"),
        ]
        # A tool is protected by the session's signed cookie, or over MCP by its token: it is all that a grant carries.
        tools = tools_of(self)
        served = [RouteSpec(f"/{tool.name}", self._tool_handler(tool), Access.OPEN, data=True) for tool in tools]
        if self.config.expose_tools_over_mcp:
            served.append(RouteSpec(routes.MCP, self._mcp_handler(tools), Access.OPEN, data=True))
        return control + served

    def background(self) -> list[Any]:
        """The sweeper of expired sessions."""
        return [self.sessions.sweep_forever()]

    async def stop(self) -> None:
        """Release every session that is still open."""
        await self.sessions.close_all()

    def status(self) -> dict[str, Any]:
        """The number of open sessions."""
        return {"sessions": len(self.sessions)}

    async def _seed(self, call: Call) -> Answer:
        self.refuse_while_draining()
        body = call.json()
        if not isinstance(body, dict):
            raise ContractError(422, f"the body of {call.path} must be an object")
        body = cast("dict[str, Any]", body)
        if "resources_session_id" not in body:
            return await self._seed_old_form(call, body)
        request = parse(ResourcesSeedSessionRequest, body, f"the body of {call.path}")
        session = ResourcesSession[State](request.resources_session_id, request.episode_id, request.task_id)

        async def build(session: Session[State]) -> dict[str, Any]:
            assert isinstance(session, ResourcesSession)
            session.resources_tools = self._mcp_metadata(session.id)
            await self.seed(session, request.task_data)
            reply: dict[str, Any] = {"resources_session_id": session.id}
            if session.resources_tools is not None:
                reply["resources_tools"] = session.resources_tools.model_dump(mode="json")
            if session.sandbox_access is not None:
                reply["sandbox_access"] = session.sandbox_access.model_dump(mode="json")
            return reply

        reply = await self.sessions.open(session, digest(call.body), build)
        return Answer(reply, cookies={self._cookies.name: self._cookies.sign(session.id)})

    async def _seed_old_form(self, call: Call, body: dict[str, Any]) -> Answer:
        session = ResourcesSession[State](new_resources_session_id(), None, None)

        async def build(opened: Session[State]) -> None:
            await self.seed(session, body)

        await self.sessions.open(session, digest(call.body), build)
        tools = self._mcp_metadata(session.id)
        reply = {} if tools is None else {"mcp": tools.model_dump(mode="json")}
        return Answer(reply, cookies={self._cookies.name: self._cookies.sign(session.id)})

    def _mcp_metadata(self, session_id: str) -> MCPServerMetadata | None:
        if not self.config.expose_tools_over_mcp:
            return None
        headers = {routes.MCP_SESSION_HEADER: self._mcp_tokens.sign(session_id)}
        return MCPServerMetadata(server_name=self.context.instance, url_path=routes.MCP, headers=headers)

    def _session_id(self, call: Call) -> str | None:
        """The session that the request's cookie names. Raises ContractError (401) for a cookie that we did not sign."""
        value = call.cookie(self._cookies.name)
        session_id = self._cookies.read(value)
        if value is not None and session_id is None:
            raise ContractError(401, f"the session cookie was not made by {self.context.instance} in this run")
        return session_id

    def _tool_handler(self, tool: Tool) -> Handler:
        async def handle(call: Call) -> Any:
            session_id = self._session_id(call)
            if session_id is None:
                raise ContractError(401, f"tool {tool.name} needs a session cookie; seed a session first")
            return await self._run_tool(session_id, tool, None if tool.arguments is None else call.json())

        return handle

    async def _run_tool(self, session_id: str, tool: Tool, given: Any) -> Any:
        """What the tool returns. Raises ContractError: 422 for arguments that do not fit, else as `SessionRegistry.get` does."""
        if tool.arguments is None:
            return await self.sessions.during(session_id, tool.call)
        arguments = parse(tool.arguments, given, f"the arguments of tool {tool.name}")
        return await self.sessions.during(session_id, lambda session: tool.call(session, arguments))

    def _mcp_handler(self, tools: list[Tool]) -> Handler:
        header = routes.MCP_SESSION_HEADER

        def session_of(call: Call) -> str:
            session_id = self._mcp_tokens.read(call.headers.get(header.lower()))
            if session_id is None:
                raise ContractError(401, f"{call.path} needs the header {header} with the token that the seed of a session answered")
            return self.sessions.get(session_id).id

        return ToolsOverMCP(self.context.instance, tools, session_of, self._run_tool).answer

    async def _verify(self, call: Call) -> dict[str, Any]:
        session_id = self._session_id(call)
        body: object = call.json()
        if isinstance(body, dict) and "verification_input" in body:
            return await self._verify_typed(session_id, call)
        request = call.parse(BaseVerifyRequest)
        request = self._with_own_names(request)
        verdict = await (self.verify(None, request) if session_id is None else self._verify_session(session_id, call, request))
        return {**call.json(), **verdict_to_wire(verdict)}

    async def _verify_typed(self, session_id: str | None, call: Call) -> dict[str, Any]:
        """The typed form: who is asking is said and checked, and only the verdict comes back."""
        typed = call.parse(ResourcesVerifyRequest[dict[str, Any]])
        request = parse(BaseVerifyRequest, typed.verification_input, f"verification_input of {call.path}")
        request = self._with_own_names(request)
        if session_id is None:
            return verdict_to_wire(await self.verify(None, request))
        self.sessions.check_episode(session_id, typed.episode_id)
        return verdict_to_wire(await self._verify_session(session_id, call, request))

    def _with_own_names(self, request: BaseVerifyRequest) -> BaseVerifyRequest:
        """The request with plain names for our tools, which agents that called them over MCP name `mcp__<server>__<tool>`."""
        if not self.config.expose_tools_over_mcp:
            return request
        prefix = f"mcp__{self.context.instance}__"

        def named(item: Item) -> Item:
            return {**item, "name": str(item.get("name")).removeprefix(prefix)} if item.get("type") == "function_call" else item

        response = request.response.model_copy(update={"output": [named(item) for item in request.response.output]})
        return request.model_copy(update={"response": response})

    async def _verify_session(self, session_id: str, call: Call, request: BaseVerifyRequest) -> Verdict:
        async def run(session: Session[State]) -> Verdict:
            assert isinstance(session, ResourcesSession)
            async with session.lock:
                return await self.verify(session, request)

        try:
            return await self.sessions.once(session_id, digest(call.body), run)
        except ContractError as error:
            if error.kind != "session_lost":
                raise
            kind = "session_expired" if self.sessions.expired_session(session_id) else "session_lost"
            return Masked(kind, error.message, {**self.lost_fields(request), **LOST_SESSION})

    async def _close(self, call: Call) -> dict[str, Any]:
        session_id = self._session_id(call)
        if session_id is not None and call.json() == {}:  # the old form: the cookie alone names the session
            await self.sessions.close(session_id, None)
            return {"resources_session_id": session_id}
        request = call.parse(ResourcesCloseSessionRequest)
        await self.sessions.close(request.resources_session_id, request.episode_id)
        return {"resources_session_id": request.resources_session_id}

    async def _aggregate_metrics(self, call: Call) -> dict[str, Any]:
        body: object = call.json()
        rows = cast("dict[str, Any]", body).get("verify_responses", []) if isinstance(body, dict) else body
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in cast("list[Any]", rows)):
            raise ContractError(422, f"the body of {call.path} must hold a list of rows")
        return {"agent_metrics": self.aggregate_metrics(cast("list[dict[str, Any]]", rows))}

    async def _reverify_mode(self, call: Call) -> dict[str, str]:
        return {"mode": self.reverify_mode}

    reverify_mode: ClassVar[ReverifyMode] = "unsupported"
    """Whether a stored rollout can be verified again, and how; see `ReverifyMode`."""
