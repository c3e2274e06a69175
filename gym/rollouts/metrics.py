"""Metrics of a run, by one pass over the written rows.

Invariant: only measured rows enter a number; masked and unscored ones are counted. Per task a few
numbers are kept, and nothing per row.

The standard error is clustered by task, since repeats of one task are not independent. pass@k, pass^k and majority@k are unbiased
estimates, averaged over the tasks with at least k measured rollouts; a rollout passes with a reward of 1 or more. A majority needs
the answer that was graded, in each measured row of a task. Estimators: `gym.rollouts.estimators`.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from gym.protocol.rollouts import TASK_ID, TASK_INDEX
from gym.rollouts.estimators import clustered_error, majority_at_k, pass_all_k, pass_at_k

PASS_REWARD = 1.0
"""The least reward with which a rollout counts as passed."""
ANSWER = "extracted_answer"
"""Where a row holds the answer that was graded, if its benchmark has such a thing."""
GROUPS = ("taskset", "subset")
"""What metrics are told by, beside all together; a subset is the row's own field of that name."""

_MOST_VOTES = 64
"""Rollouts of one task beyond which no majority is computed: its cost grows with a high power of them."""

Group = tuple[int, str]
"""Place in GROUPS, and name."""


class Table:
    """Rewards summed up by task: a few bytes for each task, by its index, and for each answer."""

    def __init__(self, dense: int) -> None:
        """Task indices below `dense` are places in the table; others, which only rows with indices of their own have, are looked up."""
        self._dense = dense
        self._sparse: dict[int, int] = {}
        self._number, self._passed, self._sum = array("I"), array("I"), array("d")
        self._groups = tuple(array("I") for _ in GROUPS)
        self._codes: dict[Group, int] = {}
        self._answers = (array("I"), array("q"), array("d"))
        self._masked: Counter[Group] = Counter()
        self._unscored: Counter[Group] = Counter()

    def names(self, group: int) -> list[str]:
        """The tasksets or subsets that were met, sorted."""
        return sorted(name for place, name in self._codes if place == group and name)

    def add(self, row: dict[str, Any], task: int | None = None) -> None:
        """Take in one written row, of task number `task` (its own index if that is not given)."""
        task_id = row.get(TASK_ID)
        subset = row.get("subset")
        groups: tuple[Group, ...] = (
            (0, str(task_id["taskset"]) if task_id else ""),
            (1, subset if isinstance(subset, str) else ""),
        )
        reward = row.get("reward")
        if row.get("mask_sample"):
            self._count(self._masked, groups)
        elif reward is None:
            self._count(self._unscored, groups)
        else:
            slot = self._slot(row[TASK_INDEX] if task is None else task)
            self._number[slot] += 1
            self._passed[slot] += reward >= PASS_REWARD
            self._sum[slot] += reward
            for column, group in zip(self._groups, groups, strict=True):
                column[slot] = self._codes.setdefault(group, len(self._codes) + 1)
            answer = row.get(ANSWER)
            if answer is not None:
                for column, value in zip(self._answers, (slot, hash(str(answer)), reward), strict=True):
                    column.append(value)

    def summary(self, group: Group | None = None) -> dict[str, Any]:
        """The metrics of one group, or of all; null where there is nothing to say them of."""
        chosen = [self._number[slot] for slot in self._slots(group)]
        tasks, measured, repeats = len(chosen), sum(chosen), max(chosen, default=0)
        mean = math.fsum(self._sum[slot] for slot in self._slots(group)) / measured if measured else None
        sums = ((self._number[slot], self._sum[slot]) for slot in self._slots(group))
        votes = self._votes(group)
        found: dict[str, Any] = {
            "tasks": tasks,
            "measured": measured,
            "masked": _counted(self._masked, group),
            "unscored": _counted(self._unscored, group),
            "mean_reward": mean,
            "standard_error": clustered_error(sums, tasks, mean, measured) if mean is not None and tasks > 1 else None,
            "max_repeats": repeats,
            "pass_at_k": self._by_k(group, repeats, pass_at_k),
            "pass_all_k": self._by_k(group, repeats, pass_all_k),
        }
        if votes:
            most = max(sum(count for count, _ in task) for task in votes)
            found["majority_at_k"] = {str(k): value for k in _some_k(most) if (value := _majority(votes, k)) is not None}
        return found

    def task(self, task: int) -> tuple[int, int, float]:
        """Measured rollouts, passed rollouts and the sum of rewards of one task."""
        slot = self._slot(task)
        return self._number[slot], self._passed[slot], self._sum[slot]

    def _count(self, counter: Counter[Group], groups: tuple[Group, ...]) -> None:
        counter.update(groups)
        for group in groups:
            self._codes.setdefault(group, len(self._codes) + 1)

    def _slots(self, group: Group | None) -> Iterator[int]:
        """The places of a group's tasks that have a measured rollout."""
        code = self._codes.get(group) if group is not None else None
        column = self._groups[group[0]] if group is not None else None
        return (slot for slot, number in enumerate(self._number) if number and (column is None or column[slot] == code))

    def _slot(self, index: int) -> int:
        slot = index if index < self._dense else self._sparse.setdefault(index, self._dense + len(self._sparse))
        if slot >= len(self._number):
            missing = slot + 1 - len(self._number)
            for column in (self._number, self._passed, self._sum, *self._groups):
                column.frombytes(bytes(column.itemsize * missing))
        return slot

    def _by_k(self, group: Group | None, repeats: int, estimate: Callable[[int, int, int], float]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        counts = Counter((self._number[slot], self._passed[slot]) for slot in self._slots(group))
        for k in _some_k(repeats):
            enough = {pair: tasks for pair, tasks in counts.items() if pair[0] >= k}
            tasks = sum(enough.values())
            value = math.fsum(number * estimate(n, c, k) for (n, c), number in enough.items()) / tasks
            found[str(k)] = {"value": value, "tasks": tasks}
        return found

    def _votes(self, group: Group | None) -> list[list[tuple[int, float]]]:
        """Of each task of which every measured row has an answer: how often each was given, and its mean reward."""
        if not self._answers[0]:
            return []
        chosen = set(self._slots(group))
        found: list[list[tuple[int, float]]] = []
        rows = sorted(zip(*self._answers, strict=True))
        for slot, answers in groupby(rows, key=lambda row: row[0]):
            if slot not in chosen:
                continue
            given = [[reward for _, _, reward in same] for _, same in groupby(answers, key=lambda row: row[1])]
            if sum(map(len, given)) == self._number[slot]:
                found.append([(len(rewards), math.fsum(rewards) / len(rewards)) for rewards in given])
        return found


def _counted(counter: Counter[Group], group: Group | None) -> int:
    """Of all rows each is in one taskset, so those add up."""
    return counter[group] if group is not None else sum(number for (place, _), number in counter.items() if place == 0)


def _majority(votes: list[list[tuple[int, float]]], k: int) -> dict[str, Any] | None:
    enough = [task for task in votes if k <= sum(count for count, _ in task) <= _MOST_VOTES]
    return {"value": math.fsum(majority_at_k(task, k) for task in enough) / len(enough), "tasks": len(enough)} if enough else None


def compute_metrics(rows: Path, *, expected: int) -> dict[str, Any]:
    """The metrics over a file of output rows, in all and by group.

    `expected` is about how many rows there may be. Raises OSError, and ValueError for a line that is no row.
    """
    table = Table(4 * expected + 1024)
    with rows.open("rb") as lines:
        for line in lines:
            table.add(orjson.loads(line))
    return told(table)


def told(table: Table) -> dict[str, Any]:
    """What stands in the metrics file."""
    summary = table.summary()
    notes: list[str] = []
    if not summary["tasks"]:
        notes.append("there is no rollout: nothing was measured")
    if summary["max_repeats"] == 1:
        notes.append("one repeat of each task: the standard error is between tasks only")
    if summary["masked"]:
        notes.append(f"{summary['masked']} masked rows are left out of every number")
    groups = {f"by_{name}": {of: table.summary((place, of)) for of in table.names(place)} for place, name in enumerate(GROUPS)}
    return {"schema_version": 1, "pass_reward": PASS_REWARD, "overall": summary, **groups, "notes": notes}


def _some_k(repeats: int) -> list[int]:
    """1, 2, 4, … up to the number of repeats, and that number itself."""
    powers = [1 << power for power in range(repeats.bit_length()) if 1 << power <= repeats]
    return powers if not repeats or powers[-1] == repeats else [*powers, repeats]
