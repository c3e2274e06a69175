"""Metrics over rollouts that were written, of one output or of several together, such as the shards of a run."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gym.rollouts.metrics import Table, told
from gym.rollouts.scored import Scored, scored_rows


class Tally:
    """Rows summed up by the names of their tasks; tallies that are compared share `tasks`, the number of each name."""

    def __init__(self, tasks: dict[tuple[str, str], int] | None = None) -> None:
        self.table = Table(0)
        self._tasks = {} if tasks is None else tasks

    def add(self, scored: Scored) -> None:
        """Take in one row."""
        self.table.add(scored.row, self._tasks.setdefault(scored.task, len(self._tasks)))


def aggregate(paths: Iterable[Path], *, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """The metrics, as in the metrics file of a run. Tasks of one name are one task, in whichever file. Raises UserError."""
    tally = Tally()
    for scored in scored_rows(paths, progress=progress):
        tally.add(scored)
    return told(tally.table)


def as_table(metrics: dict[str, Any]) -> list[list[str]]:
    """Metrics as lines of cells, the first of which is the heading; a group that is all there is has no line of its own."""
    groups = [("all", metrics["overall"])]
    for kind in ("taskset", "subset"):
        found = metrics[f"by_{kind}"]
        groups += [(f"{kind} {name}", values) for name, values in found.items()] if len(found) > 1 else []
    ks = metrics["overall"]["pass_at_k"]
    most = [k for k in ks if k != "1"][-1:]
    majority = "majority_at_k" in metrics["overall"]
    head = [
        "",
        "tasks",
        "measured",
        "masked",
        "unscored",
        "mean reward",
        "pass@1",
        *(f"pass@{k}" for k in most),
        *(f"pass^{k}" for k in most),
    ]
    return [
        [*head, *([f"majority@{k}" for k in most] if majority else [])],
        *([name, *_cells(values, most, majority=majority)] for name, values in groups),
    ]


def _cells(values: dict[str, Any], most: list[str], *, majority: bool) -> Iterator[str]:
    for name in ("tasks", "measured", "masked", "unscored"):
        yield str(values[name])
    mean, error = values["mean_reward"], values["standard_error"]
    yield "" if mean is None else f"{mean:.4f}" + (f" ± {error:.4f}" if error is not None else "")
    wanted = [("pass_at_k", "1"), *(("pass_at_k", k) for k in most), *(("pass_all_k", k) for k in most)]
    for name, k in [*wanted, *(("majority_at_k", k) for k in most if majority)]:
        found = values.get(name, {}).get(k)
        yield "" if found is None else f"{found['value']:.4f}"
