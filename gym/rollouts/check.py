"""Whether tasks hold: what the oracle and the no-op agent came to, task by task.

Invariant: a task holds only if every rollout of the oracle resolved it and none of the no-op agent
did. A task without a rollout of both is unchecked, with a reason, and counts for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import orjson

from gym.protocol.rollouts import FAILURE_KIND, FAILURE_MESSAGE, ROLLOUT_INDEX, TASK_ID, TASK_INDEX
from gym.rollouts.files import OutputFiles

_OF_THE_TASK = ("agent_run_error", "swe:task_refused")
"""Failures of an episode that are its task's fault: a gold patch that does not apply, an image that is not what the row says."""


class State(StrEnum):
    """What is known of a task."""

    HOLDS = "holds"
    BROKEN = "broken"
    """Gold never resolves it, or something does without any change."""
    FLAKY = "flaky"
    """Gold resolves it, and not every time."""
    UNCHECKED = "unchecked"


@dataclass
class Tries:
    """The rollouts of one agent at one task."""

    resolved: int = 0
    unresolved: int = 0
    masked: int = 0
    failed: int = 0
    reason: str = ""
    """Why the last one that was not resolved was not, as far as that is known."""

    @property
    def ended(self) -> int:
        """Rollouts whose episode ran to its end."""
        return self.resolved + self.unresolved + self.masked

    @property
    def label(self) -> str:
        """In a word."""
        words = {"resolved": self.resolved, "not resolved": self.unresolved, "no verdict": self.masked, "failed": self.failed}
        met = [f"{word} {number}x" if self.ended + self.failed > 1 else word for word, number in words.items() if number]
        return ", ".join(met) or "not run"


@dataclass
class TaskCheck:
    """One task."""

    index: int
    task_id: str
    oracle: Tries = field(default_factory=Tries)
    noop: Tries = field(default_factory=Tries)

    @property
    def state(self) -> State:
        """What the tries say."""
        if not self.oracle.ended or not self.noop.ended:
            return State.UNCHECKED
        if not self.oracle.resolved or self.noop.resolved:
            return State.BROKEN
        if self.oracle.unresolved or self.oracle.masked:
            return State.FLAKY
        return State.UNCHECKED if self.oracle.failed or self.noop.failed else State.HOLDS

    @property
    def reason(self) -> str:
        """What is wrong; empty if the task holds."""
        match self.state:
            case State.HOLDS:
                return ""
            case State.BROKEN if self.noop.resolved:
                return "it is resolved without any change"
            case State.UNCHECKED if self.oracle.ended and not self.oracle.failed:
                return self.noop.reason
            case _:
                return self.oracle.reason

    def as_dict(self) -> dict[str, Any]:
        """The task in the report."""
        return {
            "task_id": self.task_id,
            "state": self.state.value,
            "oracle": self.oracle.label,
            "noop": self.noop.label,
            "reason": self.reason or None,
        }


@dataclass(frozen=True)
class CheckReport:
    """All tasks, in the order of the rows."""

    tasks: list[TaskCheck]

    def of(self, state: State) -> list[TaskCheck]:
        """The tasks in one state."""
        return [task for task in self.tasks if task.state is state]

    @property
    def checked(self) -> list[TaskCheck]:
        """The tasks with a rollout of both agents."""
        return [task for task in self.tasks if task.state is not State.UNCHECKED]

    def line(self) -> str:
        """The account in one line."""
        checked = self.checked
        gold = sum(not task.oracle.unresolved and not task.oracle.masked and task.oracle.resolved > 0 for task in checked)
        nothing = sum(task.noop.resolved > 0 for task in checked)
        rest = "".join(f"; {len(self.of(state))} {state}" for state in (State.BROKEN, State.FLAKY, State.UNCHECKED) if self.of(state))
        return f"gold {gold}/{len(checked)} resolved, no-op {nothing}/{len(checked)}{rest}"

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        counts = {state.value: len(self.of(state)) for state in State}
        return {"tasks": len(self.tasks), "checked": len(self.checked), **counts, "details": [task.as_dict() for task in self.tasks]}


def read_check(oracle: OutputFiles, noop: OutputFiles) -> CheckReport:
    """The report on two collections of the same rows."""
    tasks: dict[int, TaskCheck] = {}
    for files, agent in ((oracle, "oracle"), (noop, "noop")):
        done: set[tuple[int, int]] = set()
        for row in _rows(files.output):
            task, tries = _place(tasks, row, agent)
            if row.get("mask_sample"):
                tries.masked += 1
            elif row.get("resolved"):
                tries.resolved += 1
            else:
                tries.unresolved += 1
            if not row.get("resolved"):
                tries.reason = _why(row)
            done.add((task.index, int(row[ROLLOUT_INDEX])))
        lost: dict[tuple[int, int], dict[str, Any]] = {}
        for row in _rows(files.failures):
            lost[int(row[TASK_INDEX]), int(row[ROLLOUT_INDEX])] = row  # the last attempt counts
        for key, row in lost.items():
            if key not in done:
                _, tries = _place(tasks, row, agent)
                if row.get(FAILURE_KIND) in _OF_THE_TASK:
                    tries.unresolved += 1
                else:
                    tries.failed += 1
                tries.reason = str(row.get(FAILURE_MESSAGE) or "")
    return CheckReport([tasks[index] for index in sorted(tasks)])


def _place(tasks: dict[int, TaskCheck], row: dict[str, Any], agent: str) -> tuple[TaskCheck, Tries]:
    index = int(row[TASK_INDEX])
    name = cast("dict[str, str]", row[TASK_ID] or {}).get("task_id", str(index))
    task = tasks.setdefault(index, TaskCheck(index, name))
    return task, task.oracle if agent == "oracle" else task.noop


def _why(row: dict[str, Any]) -> str:
    """Why a row is not resolved, in a line."""
    if row.get("failure_reason"):
        return str(row["failure_reason"])
    if row.get("patch_applied") is False:
        return str(row.get("patch_capture_error") or "the patch is empty or does not apply")
    if row.get("forged_results"):
        return str(row["forged_results"])
    failed = cast("list[str]", row.get("failed_required_tests") or [])
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"failed or missing: {', '.join(failed[:3])}{more}" if failed else "not resolved"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                yield orjson.loads(line)
