"""Two collections of the same tasks, compared task by task.

The difference of two means over the same tasks has a far smaller error than each mean, since what makes a task hard is in both.
Each task counts once, by its mean reward over measured rollouts. Tasks that only one of the two has measured are counted and left out.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gym.rollouts.aggregate import Tally
from gym.rollouts.estimators import Difference, paired_difference, sign_test
from gym.rollouts.scored import scored_rows

SOLVED = 0.5
"""The share of passed rollouts from which a task counts as solved."""


@dataclass(frozen=True)
class Flip:
    """A task that one of the two solves and the other does not: passed and measured rollouts of each."""

    taskset: str
    task_id: str
    passed: tuple[int, int]
    measured: tuple[int, int]


@dataclass(frozen=True)
class Comparison:
    """B against A; differences are B less A."""

    tasks: int
    """Measured in both."""
    only: tuple[int, int]
    """Tasks measured in A alone, and in B alone."""
    means: tuple[float, float] | None
    """Mean reward of each over the tasks of both, each task once."""
    difference: Difference | None
    better: int
    worse: int
    sign_test: float
    gained: list[Flip]
    lost: list[Flip]
    one_repeat: bool

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"schema_version": 1, **asdict(self)}

    def lines(self, names: tuple[str, str]) -> list[str]:
        """For people."""
        left_out = [f"{number} measured in {name} alone" for name, number in zip(names, self.only, strict=True) if number]
        lines = [
            f"{self.tasks} task{'s' * (self.tasks != 1)} measured in both" + (f"; left out: {', '.join(left_out)}" if left_out else "")
        ]
        if self.means is not None:
            lines += [f"mean reward {mean:.4f}  {name}" for mean, name in zip(self.means, names, strict=True)]
        if self.difference is not None:
            found = self.difference
            within = f"95 % interval {found.low:+.4f} to {found.high:+.4f}"
            lines.append(f"difference {found.mean:+.4f} ± {found.standard_error:.4f} ({within}, paired by task)")
        same = self.tasks - self.better - self.worse
        lines.append(f"{self.better} better, {self.worse} worse, {same} the same (sign test p = {self.sign_test:.3g})")
        for word, flips in (("gained", self.gained), ("lost", self.lost)):
            if flips:
                lines.append(f"{word} {len(flips)}: {', '.join(flip.task_id for flip in flips[:20])}{' …' if len(flips) > 20 else ''}")
        if self.one_repeat:
            lines.append("one rollout of each task: the interval says how far tasks differ, and nothing of how far runs differ")
        return lines


def compare(a: Path, b: Path, *, progress: Callable[[int], None] | None = None) -> Comparison:
    """Compare the rollouts of `b` with those of `a`. Raises UserError."""
    tasks: dict[tuple[str, str], int] = {}
    tallies = Tally(tasks), Tally(tasks)
    for tally, path in zip(tallies, (a, b), strict=True):
        for scored in scored_rows([path], progress=progress):
            tally.add(scored)
    differences: list[float] = []
    flips: tuple[list[Flip], list[Flip]] = ([], [])
    only, sums, most = [0, 0], [0.0, 0.0], 0
    for (taskset, task_id), number in tasks.items():
        (n, passed, total), (m, passed_b, total_b) = (tally.table.task(number) for tally in tallies)
        if not n or not m:
            only[0] += bool(n)
            only[1] += bool(m)
            continue
        means = total / n, total_b / m
        sums = [sums[0] + means[0], sums[1] + means[1]]
        differences.append(means[1] - means[0])
        most = max(most, n, m)
        solved = passed / n >= SOLVED, passed_b / m >= SOLVED
        if solved[0] != solved[1]:
            flips[solved[0]].append(Flip(taskset, task_id, (passed, passed_b), (n, m)))
    number = len(differences)
    better, worse = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    return Comparison(
        tasks=number,
        only=(only[0], only[1]),
        means=(sums[0] / number, sums[1] / number) if number else None,
        difference=paired_difference(differences),
        better=better,
        worse=worse,
        sign_test=sign_test(better, worse),
        gained=flips[0],
        lost=flips[1],
        one_repeat=most == 1,
    )
