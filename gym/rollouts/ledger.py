"""Counting: what is known about every rollout, in a few bytes each.

Invariant: `expected = measured + masked + unscored + failed + owed`, at every moment. A rollout is
owed until its newest reserved attempt has been recorded; reserving an attempt makes it owed again.
"""

from array import array
from collections import Counter

from gym.protocol.rollouts import Outcome
from gym.rollouts.outcomes import Failure

_OUTCOMES = (Outcome.OWED, Outcome.MEASURED, Outcome.MASKED, Outcome.UNSCORED, Outcome.FAILED)
_CODES = {outcome: code for code, outcome in enumerate(_OUTCOMES)}

MAX_ADMISSIONS = 1000
"""How often one rollout may be turned away for want of room, with a reply, before that counts as its failure."""
_OTHER_KINDS = 255


class Ledger:
    """The state of `tasks` dispatchable rollouts, named by their line number, beside `invalid` ones that failed before."""

    def __init__(self, tasks: int, invalid: int, attempts: int) -> None:
        self._attempts = attempts
        self._invalid = invalid
        self._outcome = bytearray(tasks)
        self._counted = bytearray(tasks)
        self._unsent = bytearray(tasks)
        self._admissions = array("H", bytes(2 * tasks))
        self._next = array("H", bytes(2 * tasks))
        self._kind = bytearray(tasks)
        self._kinds: list[str] = []
        self._totals = [tasks, 0, 0, 0, 0]
        self.expected = tasks + invalid
        self.reserved = 0
        """Attempts reserved in all."""
        self.counted_failures = 0
        self.exhausted = 0
        """Rollouts that ended masked or failed with all their attempts used."""
        self.failed_attempts: Counter[str] = Counter({"invalid_task": invalid} if invalid else {})
        """Failed attempts by kind."""
        self.first_failure: str | None = None
        """The first failed attempt of this run, for people."""
        self.waiting = 0
        """Rollouts that wait to be let in by a full server."""
        self.retrying = 0
        """Rollouts that stand at failed, and are tried again."""
        self.reward_sum = 0.0

    def count(self, outcome: Outcome) -> int:
        """How many rollouts stand at `outcome` now."""
        return self._totals[_CODES[outcome]] + (self._invalid if outcome is Outcome.FAILED else 0)

    @property
    def done(self) -> int:
        """Rollouts of which the newest attempt is recorded, and that are not tried again in this run."""
        return self.expected - self.count(Outcome.OWED) - self.retrying

    @property
    def mean_reward(self) -> float | None:
        """The mean over the measured rollouts so far."""
        measured = self.count(Outcome.MEASURED)
        return self.reward_sum / measured if measured else None

    def next_attempt(self, rollout: int) -> int:
        """The number that the rollout's next attempt gets; also how many were reserved."""
        return self._next[rollout]

    def reserve(self, rollout: int) -> int:
        """Take the rollout's next attempt number; it is owed from now on."""
        attempt = self._next[rollout]
        self._next[rollout] = attempt + 1
        self.reserved += 1
        self.retrying -= self._outcome[rollout] == _CODES[Outcome.FAILED]
        self._set(rollout, _CODES[Outcome.OWED])
        return attempt

    def restore(self, rollout: int, following: int) -> None:
        """Of an earlier run: the rollout's next attempt is at least number `following`."""
        if following > self._next[rollout]:
            self.reserved += following - self._next[rollout]
            self._next[rollout] = following

    def reopen(self, retry: bytearray) -> bytearray:
        """Between two runs: return 1 for each rollout that is not run again.

        `retry` says which newest failure may be tried again: 1 while attempts last, 2 in any case.
        """
        closed = bytearray(len(retry))
        self.exhausted = self.retrying = 0
        for rollout, code in enumerate(self._outcome):
            if code == _CODES[Outcome.OWED]:
                continue
            left = code == _CODES[Outcome.FAILED] and (retry[rollout] > 1 or self._counted[rollout] < self._attempts)
            closed[rollout] = not (retry[rollout] and left)
            self.retrying += not closed[rollout]
            self.exhausted += bool(retry[rollout]) and not left
        return closed

    def charge(self, rollout: int, failure: Failure) -> bool:
        """Note a failed or masked attempt; return whether the rollout may be tried again in this run.

        Only failures that were (possibly) delivered and begun use up an attempt. Those that were
        not sent are bounded by the same number apart, so that a dead server ends a run.
        """
        self.recall(rollout, failure)
        if failure.admission:
            self._admissions[rollout] += 1
            left = self._admissions[rollout] < MAX_ADMISSIONS
        elif not failure.counts:
            self._unsent[rollout] += 1
            left = self._unsent[rollout] < self._attempts
        else:
            left = self._counted[rollout] < self._attempts
        again = failure.retry and left
        self.exhausted += failure.retry and not left
        return again

    def recall(self, rollout: int, failure: Failure) -> None:
        """Note a failed or masked attempt, also of an earlier run, of which those that were never sent or let in bound nothing any more."""
        self.failed_attempts[failure.kind or failure.failure_class] += 1
        if failure.counts and not failure.terminal:
            self._counted[rollout] = min(self._counted[rollout] + 1, 255)
            self.counted_failures += 1

    def tries(self, rollout: int) -> int:
        """How many attempts have failed so far, for the back-off."""
        return self._counted[rollout] + self._unsent[rollout] + self._admissions[rollout]

    def settle(self, rollout: int, outcome: Outcome, *, reward: float | None = None, kind: str | None = None, again: bool = False) -> None:
        """Record how the newest attempt ended; with `again` it failed, and there will be another."""
        self._set(rollout, _CODES[outcome])
        self.retrying += again
        if reward is not None:
            self.reward_sum += reward
        if kind is not None:
            self._kind[rollout] = self._kind_code(kind)

    def failed_by_kind(self) -> dict[str, int]:
        """Rollouts that stand at failed now, by the kind of their newest failure."""
        failed = _CODES[Outcome.FAILED]
        codes = Counter(kind for outcome, kind in zip(self._outcome, self._kind, strict=True) if outcome == failed)
        named = {self._kinds[code - 1] if 0 < code < _OTHER_KINDS else "other": number for code, number in codes.items()}
        if self._invalid:
            named["invalid_task"] = self._invalid
        return dict(sorted(named.items()))

    def _set(self, rollout: int, code: int) -> None:
        self._totals[self._outcome[rollout]] -= 1
        self._totals[code] += 1
        self._outcome[rollout] = code

    def _kind_code(self, kind: str) -> int:
        if kind in self._kinds:
            return self._kinds.index(kind) + 1
        if len(self._kinds) >= _OTHER_KINDS - 1:
            return _OTHER_KINDS
        self._kinds.append(kind)
        return len(self._kinds)
