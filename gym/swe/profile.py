"""What one SWE data set says about its tasks; the rest of `gym/swe` is the same for all.

A profile is small on purpose: the row's form, the image, what to run, how to read the output and
when a task counts as resolved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

START = ">>>>> Start Test Output"
END = ">>>>> End Test Output"


@dataclass(frozen=True)
class Task:
    """One row, read. `required` are the tests that must pass; `gold_patch` is never shown to an agent that was not granted it."""

    instance_id: str
    image: str
    workdir: str
    gold_patch: str
    test_patch: str
    required: tuple[str, ...]
    row: Mapping[str, Any]
    setup: tuple[str, ...] = ()
    """Commands run in every sandbox of this task before anything else."""
    hide: tuple[str, ...] = ()
    """Paths removed before the agent starts, absolute or below the work tree. They are the grader's: no patch may bring them."""


@dataclass(frozen=True)
class Evaluation:
    """How to run a task's tests: a bash script that says `start_marker` before the tests and `end_marker` after.

    The server swaps both markers for ones that carry a nonce.
    """

    script: str
    start_marker: str = START
    end_marker: str = END
    sentinel_folder: str | None = None
    """Where a test that must fail is put, for a script that does not name its test files: below the work tree, or absolute. See `sentinel`."""
    log_parser: str | None = None
    """A Python program of the data set's, run as `<stdout file> <stderr file> <result file>` in another fresh sandbox.

    The tests then keep their two streams, which must both hold the markers, and `grade` reads the result file.
    """


@dataclass(frozen=True)
class Grade:
    """What the tests showed. `statuses` is test -> status; `failed` are the required ones that failed or are missing."""

    resolved: bool
    statuses: Mapping[str, str]
    failed: tuple[str, ...] = ()
    definitely_failed: tuple[str, ...] = ()
    """The required ones that were seen to fail: enough for a zero even if the run was cut short."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


def grade_required(task: Task, statuses: Mapping[str, str], passing: frozenset[str] = frozenset({"PASSED"})) -> Grade:
    """The usual rule: every required test was seen, with a status in `passing`."""
    failed = tuple(test for test in task.required if statuses.get(test) not in passing)
    seen = tuple(test for test in failed if test in statuses)
    return Grade(not failed, statuses, failed, seen, {"failed_required_tests": list(failed)})


class Profile(Protocol):
    """One data set. Methods are called in a thread: they may compute, and must not wait for anything."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. Raises ValueError naming the field that is wrong."""
        ...

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """The test run. Raises ValueError if the data set does not say how to test this row."""
        ...

    def grade(self, task: Task, output: str) -> Grade:
        """Read the text between the markers."""
        ...
