"""What a verifier can say, as types: only a scored verdict has a reward.

On the wire an old reader wants a number in every row, so a masked verdict is written with
`reward: 0.0` beside `mask_sample: true`; nothing of ours reads that number.
"""

from dataclasses import dataclass, field
from typing import Any

from gym.protocol.failures import check_failure_kind


@dataclass(frozen=True, slots=True)
class Scored:
    """The policy was measured. `fields` are the benchmark's own, kept in the row."""

    reward: float
    fields: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Masked:
    """The episode ran to its end, but nothing was measured; the row is kept for its transcript."""

    failure_kind: str
    failure_reason: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        check_failure_kind(self.failure_kind)


Verdict = Scored | Masked


def verdict_to_wire(verdict: Verdict) -> dict[str, Any]:
    """The fields that a verify reply adds to its request."""
    if isinstance(verdict, Scored):
        return {**verdict.fields, "reward": float(verdict.reward), "mask_sample": False}
    return {
        **verdict.fields,
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": verdict.failure_kind,
        "failure_reason": verdict.failure_reason,
    }


LOST_SESSION = {"lost_session_verification": True, "evaluation_completed": False}
"""The fields of a verdict on a session that is gone, the same on every server with typed sessions."""
