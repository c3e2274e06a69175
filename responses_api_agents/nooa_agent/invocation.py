"""What an invocation adapter is: it knows how one class of NOOA agents is given a task, and what its return value means.

It runs beside the agent, in the agent server or in a sandbox, by Python 3.12. It closes what it opened before it returns or raises.
An exception of its own says that the agent broke, and fails the episode; what the policy could not do is `gave_up`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Invocation:
    """What an invocation adapter is told."""

    task: str
    """The user's messages, a blank line between them."""
    instructions: str
    """System and developer messages, and the request's `instructions`."""
    workdir: str
    params: dict[str, Any]
    """The whole request."""


@dataclass(frozen=True)
class Invoked:
    """What an invocation adapter returns."""

    text: str
    """What a verifier reads as the agent's last word."""
    value: Any = None
    """JSON; kept in the observations."""
    gave_up: str | None = None
    """Why the agent came to no result; what stands is graded."""


InvocationAdapter = Callable[[Any, Invocation], Awaitable[Invoked]]
"""Is handed the agent."""
