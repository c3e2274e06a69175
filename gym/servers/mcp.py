"""The tools of a resources server over MCP (streamable HTTP), as one route that answers each request with JSON.

Invariants: nothing is kept between two requests, so that a session costs nothing beyond its own state, and no connection has to live;
a tool is the same function, with the same arguments, as over plain HTTP. What the model can mend (arguments that do not fit) is a
result with `isError`; what broke, and a session that is not to be had, is an error of the protocol with its HTTP status.
Left out on purpose: what a server of tools alone does not need (streams, sessions of MCP's own, batches). The revision without a
handshake (2026) is left out too: its clients ask first, and fall back to one with it. The SDK is not used: to import it costs a second
and 32 MiB in every process, and it needs six times the time for each call.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel, Field

from gym import __version__
from gym.protocol.errors import ContractError
from gym.servers.http import Answer, Call, parse, refusal_of, to_json
from gym.servers.tools import Tool

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions of MCP that begin with `initialize`, oldest first."""

_INVALID_REQUEST, _METHOD_NOT_FOUND, _INVALID_PARAMS, _INTERNAL_ERROR = -32600, -32601, -32602, -32603

SessionOf = Callable[[Call], str]
"""The id of the open session that a request is made under. Raises ContractError."""
Run = Callable[[str, Tool, Any], Awaitable[Any]]
"""Session id, tool, arguments -> what the tool returns. Raises ContractError."""


class MCPRequest(BaseModel):
    """A JSON-RPC request; without `id` it is a notification."""

    jsonrpc: str = Field(pattern=r"^2\.0$")
    id: int | str | None = None
    method: str
    params: dict[str, Any] = {}


class MCPToolCall(BaseModel):
    """The parameters of `tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None


class _Error(Exception):
    """Refuses a request in JSON-RPC's own terms."""

    def __init__(self, code: int, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


class ToolsOverMCP:
    """`name` is the server's name to its clients."""

    def __init__(self, name: str, tools: Sequence[Tool], session_of: SessionOf, run: Run) -> None:
        self._name, self._session_of, self._run = name, session_of, run
        self._tools = {tool.name: tool for tool in tools}
        self._listed = [_listed(tool) for tool in tools]

    async def answer(self, call: Call) -> Answer:
        """Answer one request, whatever it is."""
        request_id: int | str | None = None
        try:
            session_id = self._session_of(call)
            request = parse(MCPRequest, call.json(), f"the body of {call.path}")
            request_id = request.id
            if request_id is None:
                return Answer(b"", 202)  # a notification; none concerns us
            return Answer({"jsonrpc": "2.0", "id": request_id, "result": await self._result(session_id, request)})
        except (_Error, ContractError) as raised:
            error = raised if isinstance(raised, _Error) else _error_of(raised)
            return Answer({"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": error.message}}, error.status)

    async def _result(self, session_id: str, request: MCPRequest) -> dict[str, Any]:
        match request.method:
            case "initialize":
                asked = request.params.get("protocolVersion")
                revision = asked if asked in REVISIONS else REVISIONS[-1]
                about = {"name": self._name, "version": __version__}
                return {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": about}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._listed}
            case "tools/call":
                return await self._call(session_id, request.params)
            case _:
                raise _Error(_METHOD_NOT_FOUND, f"there is no method {request.method!r}")

    async def _call(self, session_id: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            asked = parse(MCPToolCall, params, "the parameters of tools/call")
        except ContractError as error:
            raise _Error(_INVALID_PARAMS, error.message) from error
        tool = self._tools.get(asked.name)
        if tool is None:
            raise _Error(_INVALID_PARAMS, f"there is no tool {asked.name!r}; there are: {', '.join(self._tools) or 'none'}")
        try:
            value = await self._run(session_id, tool, asked.arguments or {})
            status, value = (value.status, value.body) if isinstance(value, Answer) else (200, value)
            return _said(to_json(value).decode(errors="replace"), failed=status >= 400)
        except Exception as error:
            refusal = refusal_of(error, f"tool {tool.name}", "")
            if refusal.status >= 500 or refusal.kind in ("session_lost", "cancelled"):
                raise refusal from error
            return _said(refusal.message, failed=True)


def _error_of(refusal: ContractError) -> _Error:
    """A session that is gone is a 404, as MCP has it."""
    status = 404 if refusal.kind == "session_lost" else refusal.status
    return _Error(_INTERNAL_ERROR if status >= 500 else _INVALID_REQUEST, refusal.message, status)


def _said(text: str, *, failed: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _listed(tool: Tool) -> dict[str, Any]:
    schema: dict[str, Any] = tool.arguments.model_json_schema() if tool.arguments is not None else {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "inputSchema": schema}
