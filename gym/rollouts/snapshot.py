"""A run at one moment, as people are told of it; `line` is the form without a terminal.

Invariant: a rollout that waits to be tried again is not done, and is told apart from those that are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gym.config.errors import printable
from gym.protocol.rollouts import Outcome
from gym.rollouts.flights import Flight, StageCount, Stages, by_stage
from gym.rollouts.gate import Gate
from gym.rollouts.ledger import Ledger

_KINDS = 4
"""Kinds of failures that are told by name."""


@dataclass(frozen=True)
class View:
    """What is looked at: it goes on changing."""

    ledger: Ledger
    flights: Mapping[str, Flight]
    gate: Gate
    adaptive: bool = False
    """Whether the gate's limit is found out."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a run. Ages and times in seconds."""

    expected: int
    done: int
    running: int
    oldest: float | None
    """Age of the oldest episode that is out."""
    stages: list[StageCount]
    waiting: int
    """Of the running ones: those that wait for a full server."""
    retrying: int
    """Failed, and about to be tried again."""
    ended: dict[str, int]
    """The ones that are done, by outcome."""
    failed_attempts: list[tuple[str, int]]
    """By kind, the most frequent first."""
    first_failure: str | None
    """The first failed attempt of this run, in words."""
    mean_reward: float | None
    elapsed: float
    left: float | None
    """What is left at the pace so far; None while nothing is known."""
    limit: int
    adaptive: bool
    shut: float
    """How long nothing new is sent, because the model asked for that."""

    @property
    def done_words(self) -> str:
        """How many are done."""
        return f"{self.done}/{self.expected} done"

    @property
    def running_words(self) -> str:
        """How many are out, where, and how old the oldest are."""
        where = "; ".join(f"{printable(told.stage)} {told.number}, oldest {duration(told.oldest)}" for told in self.stages)
        if not where and self.oldest is not None:
            where = f"oldest {duration(self.oldest)}"
        return f"{self.running} running" + (f" ({where})" if where else "")

    @property
    def waiting_words(self) -> list[str]:
        """What waits, and what for."""
        words = [f"{self.retrying} to be tried again"] if self.retrying else []
        return words + ([f"{self.waiting} waiting for a full server"] if self.waiting else [])

    @property
    def ended_words(self) -> list[str]:
        """The ones that are done, by outcome."""
        return [f"{number} {outcome}" for outcome, number in self.ended.items()]

    @property
    def failed_words(self) -> str:
        """Failed attempts by kind; empty if there are none."""
        if not self.failed_attempts:
            return ""
        more = len(self.failed_attempts) - _KINDS
        kinds = " ".join(f"{printable(kind)} {number}" for kind, number in self.failed_attempts[:_KINDS])
        return f"failed attempts: {kinds}" + (f" and {more} other kinds" if more > 0 else "")

    @property
    def reward_words(self) -> str:
        """The reward so far; empty while there is none."""
        return f"mean reward {self.mean_reward:.3f}" if self.mean_reward is not None else ""

    @property
    def pace_words(self) -> str:
        """How many may be out."""
        shut = f", nothing new for {duration(max(1.0, self.shut))}" if self.shut > 0 else ""
        return f"concurrency {self.limit}{' (auto)' if self.adaptive else ''}{shut}"

    @property
    def time_words(self) -> str:
        """Time gone and left."""
        return f"{duration(self.elapsed)} gone" + (f", about {duration(self.left)} left" if self.left is not None else "")

    def line(self) -> str:
        """All of it on one line."""
        known = [outcome for outcome in self.ended_words if not outcome.endswith(Outcome.MEASURED)]
        parts = [self.done_words, self.running_words, *self.waiting_words, *known, self.failed_words, self.reward_words]
        return ", ".join(part for part in (*parts, self.pace_words, self.time_words) if part)


def take(view: View, stages: Stages | None, *, started: float, done_before: int, now: float) -> Snapshot:
    """The state at `now` of a run that began at `started` (monotonic seconds) with `done_before` rollouts done."""
    ledger, flights = view.ledger, view.flights
    done, left = ledger.done, ledger.expected - ledger.done
    elapsed, ended_now = now - started, done - done_before
    counts = {str(outcome): ledger.count(outcome) for outcome in Outcome if outcome is not Outcome.OWED}
    counts[Outcome.FAILED] -= ledger.retrying
    return Snapshot(
        expected=ledger.expected,
        done=done,
        running=len(flights),
        oldest=now - next(iter(flights.values())).started if flights else None,
        stages=by_stage(flights, stages, now),
        waiting=ledger.waiting,
        retrying=ledger.retrying,
        ended={outcome: number for outcome, number in counts.items() if number},
        failed_attempts=ledger.failed_attempts.most_common(),
        first_failure=ledger.first_failure,
        mean_reward=ledger.mean_reward,
        elapsed=elapsed,
        left=elapsed / ended_now * left if ended_now > 0 and left else None,
        limit=view.gate.limit,
        adaptive=view.adaptive,
        shut=max(0.0, view.gate.shut_until - now),
    )


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"
