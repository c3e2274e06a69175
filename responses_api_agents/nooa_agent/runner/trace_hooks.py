"""What NOOA does, as records: the Python that it runs, the results that it returns, the calls of agent within agent.

NOOA logs and drops what a hook raises, and calls no `after_` hook whose `before_` hook returned None.
"""

import time
from contextvars import ContextVar
from typing import Any

from responses_api_agents.nooa_agent.runner.rollout import Rollout

current_execution: ContextVar[str | None] = ContextVar("gym_nooa_execution", default=None)
"""The Python execution that code runs in, so that calls of the task's tools are known to be nested in it."""


class GymTraceHooks:
    """NOOA's instrumentation hooks. What they are called with and what is not named here is not recorded."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout

    def before_code_execution(self, agent: Any, code: str, execution_id: str, **more: Any) -> Any:
        """The code is recorded when it begins, so that what it was stopped in is known."""
        call_id = more.get("tool_call_id")
        outer = current_execution.get()
        current_execution.set(execution_id)
        self._rollout.record("python_begins", execution=execution_id, call_id=call_id, code=code)
        return time.monotonic(), outer

    def after_code_execution(
        self, agent: Any, code: str, result: Any, exception: Any, context: Any, execution_id: str, **more: Any
    ) -> None:
        """What the code printed, and what it raised."""
        began, outer = context
        current_execution.set(outer)
        error = exception or getattr(result, "error", None)
        self._rollout.record(
            "python",
            execution=execution_id,
            call_id=more.get("tool_call_id"),
            stdout=str(getattr(result, "stdout", "")),
            stderr=str(getattr(result, "stderr", "")),
            value=_shown(result),
            error=f"{type(error).__name__}: {error}" if error is not None else None,
            seconds=round(time.monotonic() - began, 3),
        )

    def before_tool_execution(self, agent: Any, tool_name: str, arguments: Any, execution_id: str, **more: Any) -> Any:
        """Nothing yet."""
        return time.monotonic()

    def after_tool_execution(self, agent: Any, tool_name: str, arguments: Any, result: Any, exception: Any, **more: Any) -> None:
        """A result that was returned, or refused."""
        error = f"{type(exception).__name__}: {exception}" if exception is not None else None
        self._rollout.record("returned", tool=tool_name, error=error)

    def before_generation(self, agent: Any, method_name: str, strategy: str, generation_id: str, **more: Any) -> Any:
        """A method that the model is to carry out begins."""
        parent = more.get("parent_generation_id")
        self._rollout.record("generation_begins", generation=generation_id, parent=parent, method=method_name, strategy=strategy)
        return time.monotonic()

    def after_generation(self, agent: Any, method_name: str, exception: Any, context: Any, generation_id: str, **more: Any) -> None:
        """It ended."""
        error = f"{type(exception).__name__}: {exception}" if exception is not None else None
        self._rollout.record(
            "generation", generation=generation_id, method=method_name, error=error, seconds=round(time.monotonic() - context, 3)
        )

    def before_agent_call(self, **more: Any) -> Any:
        """Every method of an agent, its own helpers included: too many to record."""
        return None

    def after_agent_call(self, **more: Any) -> None:
        """See above."""

    def before_method_invocation(self, **more: Any) -> Any:
        """See above."""
        return None

    def after_method_invocation(self, **more: Any) -> None:
        """See above."""

    def on_messages_built(self, **more: Any) -> None:
        """The record of model calls has what was sent."""


def _shown(result: Any) -> str | None:
    """The value of the last expression, as a prompt would show it; the policy's objects may refuse even that."""
    if not getattr(result, "has_return", False) or result.returned_value is None:
        return None
    try:
        return repr(result.returned_value)
    except Exception as error:
        return f"<{type(result.returned_value).__name__}: {error}>"
