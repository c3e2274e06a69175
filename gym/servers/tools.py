"""Tools: methods of a resources server that an agent can call by `POST /<name>`.

    @tool
    async def get_weather(self, session: ResourcesSession[Any], city: GetWeather) -> dict[str, Any]: ...

The last parameter's annotation, a pydantic model, is the schema of the arguments; a tool may have
none. Arguments that do not fit are answered with 422 and a message that the model can act on.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel

_MARK = "__gym_tool__"

RESERVED = frozenset({"seed_session", "verify", "close_session", "aggregate_metrics", "reverify_mode", "sandbox_access", "mcp"})
"""Routes of the contract, which no tool can be called."""

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


def tool(method: Method) -> Method:
    """Offer an async method of a resources server as a tool under its own name."""
    setattr(method, _MARK, True)
    return method


@dataclass(frozen=True)
class Tool:
    """One tool of a server."""

    name: str
    call: Callable[..., Awaitable[Any]]
    arguments: type[BaseModel] | None
    description: str


def tools_of(server: object) -> list[Tool]:
    """The tools of `server`. Raises TypeError for a tool whose signature cannot serve as one."""
    found: list[Tool] = []
    for name, function in inspect.getmembers(type(server), inspect.isfunction):
        if not getattr(function, _MARK, False):
            continue
        if name in RESERVED:
            raise TypeError(f"tool {name!r} has the name of a route of the contract: give it another")
        method = getattr(server, name)
        parameters = list(inspect.signature(method).parameters)
        hints = get_type_hints(method)
        if not parameters or len(parameters) > 2:
            raise TypeError(f"tool {name!r} must take a session and at most one model of arguments, not ({', '.join(parameters)})")
        model = hints.get(parameters[1]) if len(parameters) == 2 else None
        if len(parameters) == 2 and not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"tool {name!r}: the arguments' annotation must be a pydantic model, not {model!r}")
        found.append(Tool(name, method, model, inspect.getdoc(method) or ""))
    return found
