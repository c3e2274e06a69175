"""The one table of failures: what each kind lets the rest of the program do.

Three questions are asked of a failure, by three different parts: may the collector try the
episode again, may the state that the agent left be graded, and is a reward given beside it a
valid measurement. Nobody else decides these.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gym.protocol.base import WireReply

Stage = Literal["admission", "seed", "agent", "verification", "cleanup"]

MAX_REASON = 2000
"""Longest `failure_reason`, in characters; longer text is cut in the middle."""


@dataclass(frozen=True)
class FailureRule:
    """What may be done about one kind of failure."""

    retry: bool
    """The collector may run the episode again."""
    grade: bool
    """The state that the agent left may still be verified."""
    reward_valid: bool
    """A reward given beside this failure measures the policy."""
    meaning: str


BUDGET_EXHAUSTED = "agent_budget_exhausted"
"""The kind by which a model server refuses a rollout that has used up its calls or tokens."""

MODEL_FAILED = "model_failed"
"""The kind by which a model server refuses a rollout whose calls fail one after the other."""

FAILURES: dict[str, FailureRule] = {
    "transport_unreachable": FailureRule(True, False, False, "a server could not be reached"),
    "transport_peer_drop": FailureRule(True, False, False, "a server dropped the connection"),
    "transport_timeout": FailureRule(True, False, False, "a call got no reply in time"),
    "agent_run_error": FailureRule(True, False, False, "the agent's harness broke"),
    "agent_request_failed": FailureRule(True, False, False, "a request to or of the agent was refused"),
    "agent_timeout": FailureRule(False, True, True, "the agent used up its own time; what stands is graded"),
    BUDGET_EXHAUSTED: FailureRule(False, True, True, "the agent used up its model calls or tokens; what stands is graded"),
    MODEL_FAILED: FailureRule(True, False, False, "the model's endpoint failed call after call"),
    "token_capture_failed": FailureRule(False, True, False, "the tokens of the model's calls are not known for certain"),
    "judge_failed": FailureRule(True, False, False, "the judge could not be asked"),
    "judge_unparseable": FailureRule(True, False, False, "the judge's answer could not be read"),
    "verifier_error": FailureRule(True, False, False, "the verifier broke, or could come to no verdict"),
    "provider_unavailable": FailureRule(True, False, False, "the sandbox provider could not serve"),
    "provider_quota_exhausted": FailureRule(True, False, False, "the sandbox provider's or registry's quota is used up"),
    "provider_oom_killed": FailureRule(True, False, False, "the sandbox ran out of memory"),
    "session_lost": FailureRule(True, False, False, "the session, or the sandbox it held, is gone"),
    "session_expired": FailureRule(True, False, False, "the session outlived its limit"),
    "session_release_failed": FailureRule(True, False, False, "a session could not be released"),
    "environment_server_failed": FailureRule(True, False, False, "the environment server broke"),
    "protocol_violation": FailureRule(False, False, False, "a peer or a row broke the contract"),
    "cancelled": FailureRule(True, False, False, "the episode was cancelled"),
    "kill_shaped": FailureRule(True, False, False, "the work ended as if it had been killed"),
    "shutdown": FailureRule(True, False, False, "the servers were stopping"),
    "persistence_failed": FailureRule(True, False, False, "a result could not be written"),
    "cohort_incomplete": FailureRule(True, False, False, "a group of rollouts is missing some of its members"),
}

_KIND = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*:)?[a-z][a-z0-9_]*")
_OWN_RULE = FailureRule(True, False, False, "a server's own kind")


def check_failure_kind(kind: str) -> str:
    """Return `kind` if it is in the table or has the form `<server>:<kind>`; raise ValueError otherwise."""
    if kind in FAILURES or (":" in kind and _KIND.fullmatch(kind)):
        return kind
    raise ValueError(f"unknown failure kind {kind!r}: use one of the table's, or '<server>:<kind>' for your own")


FailureKind = Annotated[str, AfterValidator(check_failure_kind)]


def rule(kind: str | None) -> FailureRule:
    """The rule of `kind`; a server's own kind, an unknown one of a newer peer and None get the cautious default."""
    return FAILURES.get(kind or "", _OWN_RULE)


def retryable_status(status: int) -> bool:
    """Whether an HTTP status alone, with nothing more known, lets a call be tried again."""
    return status in (408, 425, 429) or status >= 500


def bounded_reason(text: str, limit: int = MAX_REASON) -> str:
    """`text` cut in the middle to at most `limit` characters, keeping its start and its end."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} [...] {text[len(text) - (limit - head - 7) :]}"


class EpisodeFailure(WireReply):
    """Why an episode ended without a result. A reason that is too long is cut, not refused."""

    failure_reason: Annotated[str, AfterValidator(bounded_reason)]
    terminal: bool
    failure_kind: str | None = Field(default=None)
    stage: Stage | None = None
