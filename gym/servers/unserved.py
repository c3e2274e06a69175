"""Whether an agent that ran out of time was served by its model at all.

Invariant: a time-out is the policy's own only where the policy could act. An agent that never asked its model, that got no answer
at all, or that lost much of its time at the end to calls that failed, has measured nothing. A call that is under way when time is
over may be a slow policy as well as a model that hangs: after an earlier answer it is graded.
"""

from typing import Any

from gym.models.capture.facts import INFRASTRUCTURE
from gym.models.capture.report import UNREADABLE, Report
from gym.protocol.failures import MODEL_FAILED, EpisodeFailure

LOST_SHARE = 0.1
"""What part of an agent's time may go to failing calls before its time-out says nothing of the policy."""


def unserved(report: Report, began: float, ended: float) -> EpisodeFailure | None:
    """Why the time-out of an agent that worked from `began` to `ended` (seconds since the epoch) measures nothing; None if it measures."""
    calls: list[dict[str, Any]] = sorted(report["calls"], key=lambda call: call["call_index"])
    if not calls:
        unknown = any(gap["code"] == UNREADABLE for gap in report["gaps"])
        return None if unknown else _failure("agent_run_error", began, ended, "it had not asked its model anything")
    answered = any(call["complete"] and "error_category" not in call for call in calls)
    failed = _failed_last(calls)
    if failed and (not answered or ended - failed[-1]["started_at"] > LOST_SHARE * (ended - began)):
        last = failed[0]
        said = f"{last['error_category']}: {last.get('error') or 'no reason given'}"
        return _failure(MODEL_FAILED, began, ended, f"its last {len(failed)} model call(s) had failed: {said}")
    if all(call.get("error_category") == "cancelled" for call in calls):
        return _failure(MODEL_FAILED, began, ended, "its model had not answered a single call")
    return None


def _failed_last(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls since the last answer that failed and not for the agent's own doing, the newest first."""
    failed: list[dict[str, Any]] = []
    for call in reversed(calls):
        if call.get("error_category") in INFRASTRUCTURE:
            failed.append(call)
        elif call.get("error_category") != "cancelled":
            break
    return failed


def _failure(kind: str, began: float, ended: float, reason: str) -> EpisodeFailure:
    reason = f"the agent's time was over after {ended - began:.0f} s, and nothing was measured: {reason}"
    return EpisodeFailure(failure_reason=reason, terminal=False, failure_kind=kind, stage="agent")
