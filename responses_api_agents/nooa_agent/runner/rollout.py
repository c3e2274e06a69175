"""What all parts of one activation of NOOA share: its budget, what ended it, and where records of it go.

Invariant: the first thing that ends an activation is what it ends with; after that the model is called no more, whatever the
agent's code caught. NOOA's loops, and code that a policy writes, swallow `Exception`: what must end the run is a `BaseException`.
This package runs in the agent server or in a sandbox, by NOOA's own Python: it imports nothing of ours.
"""

import threading
from collections.abc import Callable
from typing import Any

Record = Callable[[dict[str, Any]], None]
"""Takes one event of the run; called from the run's own thread."""

BUDGET_EXHAUSTED = "agent_budget_exhausted"
_RECORDED_CHARACTERS = 100_000


class Stop(BaseException):
    """Ends the activation."""


class PolicyBudgetExhausted(Stop):
    """The rollout has no model calls left: what stands is graded."""


class InfrastructureFailure(Stop):
    """The model or the task's tools broke: nothing was measured."""

    def __init__(self, message: str, *, kind: str = "agent_run_error", terminal: bool = False) -> None:
        super().__init__(message)
        self.kind, self.terminal = kind, terminal


class Rollout:
    """One activation. `max_policy_calls` is for all model calls of it together; None leaves that open."""

    def __init__(self, record: Record, max_policy_calls: int | None) -> None:
        self._record, self._left = record, max_policy_calls
        self._lock = threading.Lock()
        self.ended_by: Stop | None = None

    def record(self, kind: str, /, **event: Any) -> None:
        """Pass on an event. Long texts are cut in the middle."""
        self._record({"type": kind, **{key: _bounded(value) for key, value in event.items()}})

    def stop(self, why: Stop) -> Stop:
        """What the activation ends with: `why`, if nothing else did before. The caller raises it."""
        with self._lock:
            self.ended_by = self.ended_by or why
            return self.ended_by

    def take_call(self) -> None:
        """Take one model call off the budget. Raises Stop."""
        if self.ended_by is not None:
            raise self.ended_by
        with self._lock:
            exhausted = self._left is not None and self._left <= 0
            self._left = None if self._left is None else self._left - 1
        if exhausted:
            raise self.stop(PolicyBudgetExhausted("max_policy_calls"))


def _bounded(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _RECORDED_CHARACTERS:
        return value
    half = _RECORDED_CHARACTERS // 2
    return f"{value[:half]} [...] {value[-half:]}"
