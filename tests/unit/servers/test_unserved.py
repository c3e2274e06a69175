"""Which time-outs of an agent are the policy's own, by what its model calls came to. Times in seconds; the agent works from 0 to 100."""

from typing import Any

import pytest

from gym.models.capture.report import NO_RECORDS, UNREADABLE, gap
from gym.servers.unserved import unserved


def call(category: str | None = None, at: float = 0.0) -> dict[str, Any]:
    told: dict[str, Any] = {"complete": category not in ("cancelled", "stream_truncated"), "started_at": at}
    return told if category is None else {**told, "error_category": category, "error": "it broke"}


def report(*calls: dict[str, Any], gaps: tuple[str, ...] = ()) -> dict[str, Any]:
    numbered = [{**one, "call_index": index} for index, one in enumerate(calls)]
    return {"calls": list(reversed(numbered)), "gaps": [gap(code, "so") for code in gaps]}


@pytest.mark.parametrize(
    "calls",
    [
        (call(),),
        (call(), call("cancelled", 10)),  # a long thought
        (call(), call("upstream_error", 50), call()),  # it got over it
        (call(), call("upstream_error", 95)),  # a stumble at the very end
        (call("invalid_request"), call("invalid_request")),  # its own doing
        (call("context_overflow"),),
    ],
)
def test_who_was_answered_has_used_up_its_own_time(calls: tuple[dict[str, Any], ...]) -> None:
    assert unserved(report(*calls), 0, 100) is None


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ((call("cancelled"),), "its model had not answered a single call"),
        ((call("rate_limit"), call("cancelled")), "its last 1 model call(s) had failed: rate_limit: it broke"),
        ((call("upstream_error", 99),), "its last 1 model call(s) had failed: upstream_error: it broke"),
        ((call(), call("timeout", 60), call("connection", 90)), "its last 2 model call(s) had failed: connection: it broke"),
        ((call(), call("stream_truncated", 60), call("cancelled", 90)), "its last 1 model call(s) had failed: stream_truncated: it broke"),
    ],
)
def test_who_waited_for_a_model_that_fails_measured_nothing(calls: tuple[dict[str, Any], ...], said: str) -> None:
    failure = unserved(report(*calls), 0, 100)
    assert failure is not None
    assert (failure.failure_kind, failure.terminal, failure.stage) == ("model_failed", False, "agent")
    assert failure.failure_reason == f"the agent's time was over after 100 s, and nothing was measured: {said}"


def test_who_never_asked_measured_nothing() -> None:
    failure = unserved(report(gaps=(NO_RECORDS,)), 0, 2)
    assert failure is not None
    assert (failure.failure_kind, failure.failure_reason.endswith("it had not asked its model anything")) == ("agent_run_error", True)


def test_of_a_record_that_cannot_be_read_nothing_is_said() -> None:
    assert unserved(report(gaps=(UNREADABLE,)), 0, 100) is None
