"""Metrics of a run, by one pass over the written rows.

Invariant: only measured rows enter a number; masked and unscored ones are counted. Per task a few
numbers are kept, and nothing per row.

The standard error is clustered by task: repeats of one task are not independent. With the task
sums s_g of n_g rewards and N rewards in all, it is
`sqrt(G / (G - 1) * sum_g (s_g - n_g * mean)^2) / N` (the cluster-robust variance of a mean, with
the usual small-sample factor). pass@k is the unbiased estimate `1 - C(n - c, k) / C(n, k)`, averaged
over the tasks with at least k measured rollouts; a rollout passes with a reward of 1 or more.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from gym.protocol.rollouts import TASK_ID, TASK_INDEX

PASS_REWARD = 1.0
"""The least reward with which a rollout counts as passed."""


class Table:
    """Rewards summed up by task: a few bytes for each task, by its index."""

    def __init__(self, dense: int) -> None:
        """Task indices below `dense` are places in the table; others, which only rows with indices of their own have, are looked up."""
        self._dense = dense
        self._sparse: dict[int, int] = {}
        self._number, self._passed, self._sum, self._set = array("I"), array("I"), array("d"), array("I")
        self._tasksets: dict[str, int] = {}
        self._masked: Counter[int] = Counter()
        self._unscored: Counter[int] = Counter()

    @property
    def tasksets(self) -> list[str]:
        """The tasksets that were met, sorted."""
        return sorted(self._tasksets)

    def add(self, row: dict[str, Any]) -> None:
        """Take in one written row."""
        task_id = row.get(TASK_ID)
        taskset = self._tasksets.setdefault(str(task_id["taskset"]) if task_id else "", len(self._tasksets))
        reward = row.get("reward")
        if row.get("mask_sample"):
            self._masked[taskset] += 1
        elif reward is None:
            self._unscored[taskset] += 1
        else:
            slot = self._slot(row[TASK_INDEX])
            self._number[slot] += 1
            self._passed[slot] += reward >= PASS_REWARD
            self._sum[slot] += reward
            self._set[slot] = taskset

    def summary(self, taskset: str | None = None) -> dict[str, Any]:
        """The metrics of one taskset, or of all; null where there is nothing to say them of."""
        code = None if taskset is None else self._tasksets[taskset]
        tasks = sum(1 for _ in self._tasks(code))
        measured = sum(number for number, _, _ in self._tasks(code))
        mean = math.fsum(total for _, _, total in self._tasks(code)) / measured if measured else None
        repeats = max((number for number, _, _ in self._tasks(code)), default=0)
        return {
            "tasks": tasks,
            "measured": measured,
            "masked": self._masked[code] if code is not None else self._masked.total(),
            "unscored": self._unscored[code] if code is not None else self._unscored.total(),
            "mean_reward": mean,
            "standard_error": self._standard_error(code, tasks, mean, measured) if mean is not None and tasks > 1 else None,
            "max_repeats": repeats,
            "pass_at_k": {str(k): value for k in _some_k(repeats) if (value := self._pass_at(code, k)) is not None},
        }

    def _tasks(self, code: int | None) -> Iterator[tuple[int, int, float]]:
        """Rollouts, passed rollouts and reward sum of each task of a taskset, or of all."""
        for number, passed, total, taskset in zip(self._number, self._passed, self._sum, self._set, strict=True):
            if number and (code is None or taskset == code):
                yield number, passed, total

    def _slot(self, index: int) -> int:
        slot = index if index < self._dense else self._sparse.setdefault(index, self._dense + len(self._sparse))
        if slot >= len(self._number):
            missing = slot + 1 - len(self._number)
            for column in (self._number, self._passed, self._set):
                column.frombytes(bytes(column.itemsize * missing))
            self._sum.frombytes(bytes(self._sum.itemsize * missing))
        return slot

    def _standard_error(self, code: int | None, tasks: int, mean: float, measured: int) -> float:
        squares = math.fsum((total - number * mean) ** 2 for number, _, total in self._tasks(code))
        return math.sqrt(tasks / (tasks - 1) * squares) / measured

    def _pass_at(self, code: int | None, k: int) -> dict[str, Any] | None:
        values, tasks = 0.0, 0
        for number, passed, _ in self._tasks(code):
            if number >= k:
                values += pass_at_k(number, passed, k)
                tasks += 1
        return {"value": values / tasks, "tasks": tasks} if tasks else None


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k rollouts drawn from n without replacement, c of them passed, passes (k <= n)."""
    if n - c < k:
        return 1.0
    missed = 1.0
    for i in range(k):
        missed *= (n - c - i) / (n - i)
    return 1.0 - missed


def compute_metrics(rows: Path, *, expected: int) -> dict[str, Any]:
    """The metrics over a file of output rows, in all and by taskset.

    `expected` is about how many rows there may be. Raises OSError, and ValueError for a line that is no row.
    """
    table = Table(4 * expected + 1024)
    with rows.open("rb") as lines:
        for line in lines:
            table.add(orjson.loads(line))
    summary = table.summary()
    notes: list[str] = []
    if summary["max_repeats"] == 1:
        notes.append("one repeat of each task: the standard error is between tasks only")
    if summary["masked"]:
        notes.append(f"{summary['masked']} masked rows are left out of every number")
    return {
        "schema_version": 1,
        "pass_reward": PASS_REWARD,
        "overall": summary,
        "by_taskset": {name: table.summary(name) for name in table.tasksets},
        "notes": notes,
    }


def _some_k(repeats: int) -> list[int]:
    """1, 2, 4, … up to the number of repeats, and that number itself."""
    powers = [1 << power for power in range(repeats.bit_length()) if 1 << power <= repeats]
    return powers if not repeats or powers[-1] == repeats else [*powers, repeats]
