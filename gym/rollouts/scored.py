"""Reading rollouts that were written: the rows of an output, each with the name of its task.

Invariant: a row is read as what it is or not at all. A line that is no scored row, a rollout that comes twice, and a row of a
failures file end the reading with the line that is wrong, since a number over half a file is worse than none.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gym.config.errors import UserError, shown
from gym.protocol.rollouts import ATTEMPT_INDEX, FAILURE_CLASS, ROLLOUT_ID, ROLLOUT_INDEX, RUN_ID, TASK_ID, TASK_INDEX
from gym.rollouts.files import rollouts_beside
from gym.tasks.rows import RowProblem, read_rows

_EVERY = 1000
"""Rows between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One row. `task` is taskset and task id; rows of other tools, which have neither, are named by their task index."""

    task: tuple[str, str]
    row: dict[str, Any]

    @property
    def masked(self) -> bool:
        return bool(self.row.get("mask_sample"))


def scored_rows(paths: Iterable[Path], *, progress: Callable[[int], None] | None = None) -> Iterator[Scored]:
    """The rows of these files, in order. `progress` is told how many there were so far. Raises UserError."""
    seen: set[int] = set()
    number = 0
    for path in paths:
        if (rollouts := rollouts_beside(path)) is not None:
            raise UserError(f"{path} holds no rollouts, it stands beside them: give {rollouts}")
        for line in read_rows(path):
            if isinstance(line, RowProblem):
                raise UserError(str(line))
            try:
                scored = _scored(line.value)
                key = hash((scored.task, *(line.value.get(name) for name in (RUN_ID, ROLLOUT_ID, ROLLOUT_INDEX, ATTEMPT_INDEX))))
            except (ValueError, TypeError) as error:
                raise UserError(f"{path}:{line.line}: no scored rollout: {error}; give files that 'gym eval run' wrote") from None
            if key in seen and ROLLOUT_ID in line.value:
                raise UserError(f"{path}:{line.line}: rollout {line.value[ROLLOUT_ID]} is there twice: give each output once")
            seen.add(key)
            yield scored
            number += 1
            if progress is not None and number % _EVERY == 0:
                progress(number)


def _scored(row: dict[str, Any]) -> Scored:
    if FAILURE_CLASS in row:
        raise ValueError("it is a failed attempt, as they stand in the failures file")
    reward = row.get("reward")
    if "reward" not in row and not row.get("mask_sample"):
        raise ValueError("it has no 'reward'")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, (int, float)) or not math.isfinite(reward)):
        raise ValueError(f"its reward is {shown(reward)}, not a number")
    named: object = row.get(TASK_ID)
    if isinstance(named, dict):
        task = cast("dict[str, object]", named)
        return Scored((str(task.get("taskset", "")), str(task.get("task_id", ""))), row)
    index = row.get(TASK_INDEX)
    if not isinstance(index, int):
        raise ValueError(f"it names no task ({TASK_ID} or {TASK_INDEX})")
    return Scored(("", str(index)), row)
