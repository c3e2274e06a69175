"""Judging an episode's answer: which outcome it is, and what is known about a failure.

Invariant: every answer, however broken, becomes exactly one `Ended`; no reward is ever made here,
and a reward that stands beside an infrastructure failure is not taken as a measurement. Checked
by hand and not by pydantic, because results are large and this is the collector's hot path.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import orjson

from gym.client import CallError
from gym.config.errors import printable
from gym.protocol.errors import redacted
from gym.protocol.failures import FAILURES, bounded_reason, rule
from gym.protocol.ids import capture_key, check_rollout_id
from gym.protocol.rollouts import (
    FAILURE_CLASS,
    FAILURE_KIND,
    FAILURE_MESSAGE,
    FAILURE_PARTIAL_RESPONSE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    MODEL_CALLS,
    NO_PERSIST,
    Delivery,
    Outcome,
)

BY_ENVIRONMENT = "environment_server_failed"
"""Failure class: the environment server reported it in a reply."""
BY_REQUEST = "agent_request_failed"
"""Failure class: the collector's request brought no usable reply."""
MASKED_RESULT = "masked_result"
"""Failure class: the result was masked, and the rollout is tried again."""
INVALID_TASK = "invalid_task"
"""Failure class: the row is no task; nothing was sent."""

_LINE = 300
_REFUSED = (401, 403)
_REFUSED_KIND = ":credentials_refused"
"""What a model server calls it when its provider refuses its key."""


@dataclass(slots=True, frozen=True)
class Episode:
    """One attempt of one rollout, as the collector's files name it. `task_id` is None for a row that is no task."""

    rollout_id: str
    attempt: int
    task_index: int
    rollout_index: int
    environment: str | None
    task_id: dict[str, str] | None

    @property
    def capture_key(self) -> str:
        """The name of the attempt, as `EpisodeId` has it."""
        return capture_key(self.rollout_id, self.attempt)


@dataclass(slots=True, frozen=True)
class Failure:
    """Why an attempt brought no measurement."""

    failure_class: str
    message: str
    kind: str | None
    terminal: bool
    source: Literal["environment", "collector"]
    delivery: Delivery
    stage: str | None = None
    http_status: int | None = None
    exception_type: str | None = None
    partial_response: Any = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else the environment server said about it."""

    @property
    def retry(self) -> bool:
        """Whether the collector may run the episode again."""
        return not self.terminal and rule(self.kind).retry

    @property
    def admission(self) -> bool:
        """Whether the episode was never begun, for want of room."""
        return self.stage == "admission"

    @property
    def counts(self) -> bool:
        """Whether it uses up one of the rollout's attempts: delivered, or possibly, and begun."""
        return self.delivery != "not_sent" and not self.admission

    @property
    def refused(self) -> bool:
        """Whether credentials were refused, which no other rollout will survive either."""
        kind = self.kind or "agent_request_failed"
        return kind.endswith(_REFUSED_KIND) or (self.http_status in _REFUSED and kind == "agent_request_failed")


def failure_line(rollout_id: str, stage: str | None, message: str) -> str:
    """A failed attempt, for people: whose it was, where, and why, on one line of bounded length."""
    where = f" ({stage})" if stage else ""
    return printable(f"rollout {rollout_id}{where}: {bounded_reason(' '.join(message.split()), _LINE)}")


@dataclass(slots=True, frozen=True)
class Ended:
    """How one attempt ended: a row, a failure, or both for a masked result."""

    outcome: Outcome
    row: dict[str, Any] | None = None
    failure: Failure | None = None
    reward: float | None = None


def judge(status: int, body: bytes, episode: Episode) -> Ended:
    """The outcome of an answer to `/run`."""
    if status != 200:
        return _broken(
            f"the environment server answered {status} and no episode: {body[:300].decode(errors='replace')}", http_status=status
        )
    try:
        reply: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return _broken(f"the reply is not JSON ({error.msg}, {len(body)} bytes): {body[:200].decode(errors='replace')}")
    if not isinstance(reply, dict):
        return _broken(f"the reply is not an object but {type(reply).__name__}")
    reply = cast(dict[str, Any], reply)
    wrong = _wrong_identity(reply, episode)
    if wrong is not None:
        return wrong
    result, failure = reply.get("result"), reply.get("failure")
    if (result is None) == (failure is None):
        return _broken(f"the reply holds {'both' if result is not None else 'neither'} of 'result' and 'failure'")
    if failure is not None:
        return _failed(failure)
    if not isinstance(result, dict):
        return _broken(f"the result is not an object but {type(result).__name__}")
    return _result(cast(dict[str, Any], result))


def call_failure(error: Exception) -> Failure:
    """What is known about a call that brought no reply; an exception that no dispatcher should raise is kept by its name."""
    if isinstance(error, CallError):
        return Failure(
            BY_REQUEST,
            error.message,
            kind=error.kind,
            terminal=error.terminal,
            source="collector",
            delivery=error.delivery,
            http_status=error.status,
            exception_type=type(error.__cause__).__name__ if error.__cause__ is not None else None,
        )
    return Failure(
        BY_REQUEST,
        redacted(f"{type(error).__name__}: {error}"),
        kind="agent_request_failed",
        terminal=False,
        source="collector",
        delivery="possibly_delivered",
        exception_type=type(error).__name__,
    )


def invalid_task(message: str) -> Failure:
    """The failure of a row that is no task."""
    return Failure(INVALID_TASK, bounded_reason(message), kind="protocol_violation", terminal=True, source="collector", delivery="not_sent")


def _broken(message: str, *, kind: str = "protocol_violation", terminal: bool = True, http_status: int | None = None) -> Ended:
    failure = Failure(
        BY_REQUEST, redacted(message), kind=kind, terminal=terminal, source="collector", delivery="delivered", http_status=http_status
    )
    return Ended(Outcome.FAILED, failure=failure)


def _wrong_identity(reply: dict[str, Any], episode: Episode) -> Ended | None:
    named = reply.get("episode_id")
    if not isinstance(named, dict):
        return _broken("the reply names no episode_id")
    named = cast(dict[str, Any], named)
    rollout_id, attempt = named.get("rollout_id"), named.get("attempt", 0)
    if rollout_id != episode.rollout_id:
        return _broken(f"the reply is about rollout {rollout_id!r}, not {episode.rollout_id!r}")
    if attempt != episode.attempt or isinstance(attempt, bool):
        # A late reply of an earlier attempt says nothing about this one.
        return _broken(f"the reply is about attempt {attempt!r}, not {episode.attempt}", kind="environment_server_failed", terminal=False)
    task_id = reply.get("task_id")
    if not isinstance(task_id, dict) or episode.task_id is None:
        return _broken("the reply names no task_id")
    task_id = cast(dict[str, Any], task_id)
    if any(task_id.get(key) != value for key, value in episode.task_id.items()):
        return _broken(f"the reply is about task {task_id!r}, not {episode.task_id!r}")
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _failed(failure: object) -> Ended:
    if not isinstance(failure, dict):
        return _broken(f"the failure is not an object but {type(failure).__name__}")
    told = cast(dict[str, Any], failure)
    kind, status, terminal = _text(told.get("failure_kind")), told.get("http_status"), told.get("terminal", False)
    if not isinstance(terminal, bool):
        return _broken(f"the failure's 'terminal' is {terminal!r}, not true or false")
    return Ended(
        Outcome.FAILED,
        failure=Failure(
            BY_ENVIRONMENT,
            bounded_reason(str(told.get("failure_reason") or "no reason given")),
            kind=kind,
            terminal=terminal or not rule(kind).retry,
            source="environment",
            delivery="delivered",
            stage=_text(told.get("stage")),
            http_status=status if isinstance(status, int) else None,
            partial_response=told.get("partial_response"),
            details={key: value for key, value in told.items() if key != "partial_response"},
        ),
    )


def _result(row: dict[str, Any]) -> Ended:
    if FAILURE_CLASS in row or row.get(NO_PERSIST):
        return _relayed_failure(row)
    kind = _text(row.get("failure_kind"))
    masked, reward = row.get("mask_sample", False), row.get("reward")
    if not isinstance(masked, bool) and masked is not None:
        return _broken(f"the result's mask_sample is {masked!r}, not true or false")
    if kind in FAILURES and not FAILURES[kind].reward_valid and reward is not None:
        # An infrastructure failure is never a zero, whether its server says so or not.
        masked = row["mask_sample"] = True
    if masked:
        failure = Failure(
            MASKED_RESULT,
            bounded_reason(str(row.get("failure_reason") or "the verifier gave no verdict")),
            kind=kind,
            terminal=not rule(kind).retry,
            source="environment",
            delivery="delivered",
            stage="verification",
            partial_response=row.get("response"),
        )
        return Ended(Outcome.MASKED, row=row, failure=failure)
    if reward is None:
        return Ended(Outcome.UNSCORED, row=row)
    if isinstance(reward, (int, float)):
        row["reward"] = value = float(reward)
        return Ended(Outcome.MEASURED, row=row, reward=value)
    return _broken(f"the result's reward is {reward!r}, not a number")


def _relayed_failure(row: dict[str, Any]) -> Ended:
    """A failure in the old form: an agent's flat row that marks itself as one."""
    kind = _text(row.get(FAILURE_KIND)) or _text(row.get("failure_kind"))
    if row.get(NO_PERSIST) and kind is None:
        kind = "kill_shaped"
    reason = row.get(FAILURE_MESSAGE) or row.get("failure_reason") or row.get("error") or "the agent marked its row as failed"
    return Ended(
        Outcome.FAILED,
        failure=Failure(
            _text(row.get(FAILURE_CLASS)) or BY_ENVIRONMENT,
            bounded_reason(str(reason)),
            kind=kind,
            terminal=bool(row.get(FAILURE_TERMINAL)) or not rule(kind).retry,
            source="environment",
            delivery="delivered",
            stage=_text(row.get(FAILURE_STAGE)),
            partial_response=row.get(FAILURE_PARTIAL_RESPONSE) or row.get("response"),
            details={MODEL_CALLS: row[MODEL_CALLS]} if MODEL_CALLS in row else {},
        ),
    )


def usable_rollout_id(value: object) -> str:
    """A rollout id that a row gives. Raises ValueError with the reason if it cannot be one."""
    if not isinstance(value, str):
        raise ValueError(f"rollout id {value!r} must be a string")
    return check_rollout_id(value)
