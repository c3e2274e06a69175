"""The task's tools as typed methods of the agent: `await self.increment_counter(count=4)`.

What a tool refuses is raised where it was called, for the policy's code to see; a tool server that is broken or gone ends the run.
The cookies are the tool server's own, as last seen: the next caller, and whoever verifies, needs them.
"""

import inspect
import keyword
import time
from typing import Any

import httpx

from responses_api_agents.nooa_agent.runner.http import error_of, loaded, new_client, refusal, unreachable
from responses_api_agents.nooa_agent.runner.rollout import InfrastructureFailure, Rollout
from responses_api_agents.nooa_agent.runner.trace_hooks import current_execution

_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_GONE = (401, 403, 408, 410, 425, 429)
_LEFT_OUT = object()


class ResourceToolError(Exception):
    """What a tool of the task answered with an error."""


class ResourceTools:
    """The tools of one session. `access` says where they are; None if there are none."""

    def __init__(self, access: dict[str, Any] | None, rollout: Rollout) -> None:
        self._access, self._rollout = access or {}, rollout
        self.cookies: dict[str, str] = dict(self._access.get("cookies") or {})
        self._client = new_client(self._access.get("headers") or {})

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def bind(self, agent_class: type, tools: list[dict[str, Any]]) -> type:
        """The class with a method for each tool. Raises InfrastructureFailure for a tool that cannot be one."""
        if not tools:
            return agent_class
        if not self._access:
            raise _unusable("the task offers tools, but this session was granted none (resources_tool_transports: [direct_http])")
        names = {"__module__": agent_class.__module__, "__doc__": agent_class.__doc__}
        methods: dict[str, Any] = {}
        for tool in tools:
            name = str(tool.get("name"))
            if tool.get("type") != "function":
                raise _unusable(f"a tool of type {tool.get('type')!r} cannot be a method of the agent")
            if not name.isidentifier() or keyword.iskeyword(name) or hasattr(agent_class, name) or name in methods:
                raise _unusable(f"a tool named {name!r} cannot be a method of {agent_class.__name__}")
            methods[name] = self._method(agent_class, name, tool)
        return type(agent_class)(f"{agent_class.__name__}WithResources", (agent_class,), {**names, **methods})

    def _method(self, agent_class: type, name: str, tool: dict[str, Any]) -> Any:
        signature = _signature(tool.get("parameters") or {})

        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            given = {key: value for key, value in bound.arguments.items() if key != "self" and value is not _LEFT_OUT}
            given.update(given.pop("arguments", {}) if _takes_any(signature) else {})
            return await tools.call(name, given)

        tools = self
        method.__name__, method.__qualname__ = name, f"{agent_class.__name__}.{name}"
        method.__doc__ = str(tool.get("description") or f"The task's tool {name}.")
        method.__signature__ = signature  # type: ignore[attr-defined]
        annotated = {key: parameter.annotation for key, parameter in signature.parameters.items() if key != "self"}
        method.__annotations__ = {**annotated, "return": Any}
        return method

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool: its answer, as JSON where it is that. Raises ResourceToolError, or Stop."""
        if self._rollout.ended_by is not None:
            raise self._rollout.ended_by
        began = time.monotonic()
        headers = {"cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items())} if self.cookies else {}
        try:
            reply = await self._client.post(f"{str(self._access['base_url']).rstrip('/')}/{name}", json=arguments, headers=headers)
        except httpx.HTTPError as error:
            raise self._rollout.stop(unreachable(f"the task's tool {name}", error)) from error
        if reply.cookies:
            self.cookies.update(reply.cookies)
            self._client.cookies.clear()  # they are sent by hand: a jar would go by domains and paths
            self._rollout.record("cookies", cookies=dict(self.cookies))
        self._rollout.record(
            "resource_call",
            name=name,
            arguments=arguments,
            status=reply.status_code,
            output=reply.text,
            seconds=round(time.monotonic() - began, 3),
            execution=current_execution.get(),
        )
        if reply.status_code < 400:
            return loaded(reply.text)
        error = error_of(reply)
        if reply.status_code >= 500 or reply.status_code in _GONE or error.get("type") == "session_lost":
            raise self._rollout.stop(refusal(f"the task's tool {name}", reply))
        raise ResourceToolError(f"{name}: {error.get('message')}")


def _takes_any(signature: inspect.Signature) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values())


def _signature(schema: dict[str, Any]) -> inspect.Signature:
    """The parameters that a schema describes, those that are required first; any keywords where a name is none in Python."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind)]
    properties: dict[str, Any] = schema.get("properties") or {}
    required = set(schema.get("required") or [])
    if any(not name.isidentifier() or keyword.iskeyword(name) or name == "self" for name in properties):
        parameters.append(inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(parameters, return_annotation=Any)
    for name, described in sorted(properties.items(), key=lambda entry: entry[0] not in required):
        said = described.get("type") if isinstance(described, dict) else None
        annotation = _TYPES.get(said, Any) if isinstance(said, str) else Any
        default: Any = inspect.Parameter.empty
        if name not in required:
            default = described["default"] if isinstance(described, dict) and "default" in described else _LEFT_OUT
        parameters.append(inspect.Parameter(name, kind, annotation=annotation, default=default))
    return inspect.Signature(parameters, return_annotation=Any)


def _unusable(message: str) -> InfrastructureFailure:
    return InfrastructureFailure(message, kind="protocol_violation", terminal=True)
