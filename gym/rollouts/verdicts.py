"""What verifying again has changed: old and new verdicts of each row, counted, and the rollouts whose reward is another."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from gym.protocol.rollouts import PREVIOUS_VERDICT, ROLLOUT_ID, TASK_ID

MAX_FLIPS = 1000
"""Flips that are kept by name; the others are counted."""


@dataclass(frozen=True)
class Flip:
    """One rollout with another verdict; None is no measurement."""

    rollout_id: str
    task: str
    old: float | None
    new: float | None

    def __str__(self) -> str:
        return f"{_shown(self.old)} -> {_shown(self.new)}  {self.task}  (rollout {self.rollout_id})"


@dataclass
class Changes:
    """All rows of one output; `unchanged` and the four others are its rows."""

    unchanged: int = 0
    higher: int = 0
    lower: int = 0
    now_measured: int = 0
    """There was no measurement before."""
    now_unmeasured: int = 0
    """There is none any more: masked."""
    flips: list[Flip] = field(default_factory=list[Flip])
    """The first of those that changed, in the order of the output."""

    @property
    def changed(self) -> int:
        """Rows with another verdict than before."""
        return self.higher + self.lower + self.now_measured + self.now_unmeasured

    def add(self, row: dict[str, Any]) -> None:
        """Take in one row."""
        previous = cast("dict[str, Any]", row[PREVIOUS_VERDICT])
        old, new = _reward(previous["verdict"]), _reward(row)
        if old == new:
            self.unchanged += 1
            return
        if old is None:
            self.now_measured += 1
        elif new is None:
            self.now_unmeasured += 1
        elif new > old:
            self.higher += 1
        else:
            self.lower += 1
        if len(self.flips) < MAX_FLIPS:
            task = cast("dict[str, str]", row[TASK_ID])
            self.flips.append(Flip(row[ROLLOUT_ID], f"{task['taskset']}/{task['task_id']}", old, new))

    def line(self) -> str:
        """The account on one line."""
        counts = {"higher": self.higher, "lower": self.lower, "measured now": self.now_measured, "masked now": self.now_unmeasured}
        kinds = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
        return f"{self.changed} of {self.changed + self.unchanged} verdicts changed" + (f": {kinds}" if kinds else "")

    def as_dict(self) -> dict[str, Any]:
        """For the done record."""
        return {
            "unchanged": self.unchanged,
            "changed": self.changed,
            "higher": self.higher,
            "lower": self.lower,
            "measured_now": self.now_measured,
            "masked_now": self.now_unmeasured,
            "flips": [vars(flip) for flip in self.flips],
        }


def read_changes(output: Path) -> Changes:
    """What the rows of an output say. Raises OSError."""
    changes = Changes()
    if output.exists():
        with output.open("rb") as lines:
            for line in lines:
                changes.add(orjson.loads(line))
    return changes


def _reward(row: dict[str, Any]) -> float | None:
    return None if row.get("mask_sample") else row.get("reward")


def _shown(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"
