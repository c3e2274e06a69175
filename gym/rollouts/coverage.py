"""Coverage: the account of every expected rollout, as it is written and printed."""

from dataclasses import asdict, dataclass
from typing import Any

from gym.protocol.rollouts import Outcome
from gym.rollouts.ledger import Ledger


@dataclass(frozen=True)
class Coverage:
    """`expected = measured + masked + unscored + failed + owed`; all but the attempts are rollouts."""

    expected: int
    measured: int
    masked: int
    unscored: int
    failed: int
    owed: int
    invalid: int
    """Of the failed: rollouts of rows that are no tasks."""
    attempts: int
    """Attempts reserved."""
    counted_failures: int
    """Attempts that failed, or were masked, and used up one of their rollout's attempts."""
    attempts_exhausted: int
    """Rollouts that could have been tried again, had there been attempts left."""
    max_rollout_attempts: int
    failed_by_kind: dict[str, int]

    @property
    def complete(self) -> bool:
        """Whether every rollout was measured, or unscored by choice."""
        return self.expected == self.measured + self.unscored

    def as_dict(self) -> dict[str, Any]:
        """The account as JSON."""
        reconciled = self.expected == self.measured + self.masked + self.unscored + self.failed + self.owed
        return {"schema_version": 1, **asdict(self), "complete": self.complete, "reconciled": reconciled}

    def line(self) -> str:
        """The account on one line."""
        kinds = f" ({', '.join(f'{kind} {number}' for kind, number in self.failed_by_kind.items())})" if self.failed_by_kind else ""
        return (
            f"{self.expected} expected = {self.measured} measured + {self.masked} masked + {self.unscored} unscored"
            f" + {self.failed} failed{kinds} + {self.owed} owed; {self.attempts} attempt{'s' * (self.attempts != 1)}"
        )


def coverage_of(ledger: Ledger, *, invalid: int, max_attempts: int) -> Coverage:
    """The account of a ledger as it stands."""
    return Coverage(
        expected=ledger.expected,
        measured=ledger.count(Outcome.MEASURED),
        masked=ledger.count(Outcome.MASKED),
        unscored=ledger.count(Outcome.UNSCORED),
        failed=ledger.count(Outcome.FAILED),
        owed=ledger.count(Outcome.OWED),
        invalid=invalid,
        attempts=ledger.reserved,
        counted_failures=ledger.counted_failures,
        attempts_exhausted=ledger.exhausted,
        max_rollout_attempts=max_attempts,
        failed_by_kind=ledger.failed_by_kind(),
    )
