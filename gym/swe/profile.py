"""What one SWE data set says about its tasks; the rest of `gym/swe` is the same for all.

A profile is small on purpose: the row's form, the image, what to run, how to read the output and
when a task counts as resolved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    """Paths removed before the agent starts."""


@dataclass(frozen=True)
class Evaluation:
    """How to run a task's tests: a bash script that says `start_marker` before the tests and `end_marker` after.

    The server swaps both markers for ones that carry a nonce.
    """

    script: str
    start_marker: str
    end_marker: str


@dataclass(frozen=True)
class Grade:
    """What the tests showed. `statuses` is test -> status; `failed` are the required ones that failed or are missing."""

    resolved: bool
    statuses: Mapping[str, str]
    failed: tuple[str, ...] = ()
    definitely_failed: tuple[str, ...] = ()
    """The required ones that were seen to fail: enough for a zero even if the run was cut short."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


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


def image_from_template(template: str, instance_id: str) -> str:
    """An image's name: `{instance_id}` as it is, `{instance_id_s}` and `{instance_id_1776}` lower-case with `__` replaced.

    Raises ValueError for another placeholder.
    """
    lower = instance_id.lower()
    known = {
        "instance_id": instance_id,
        "instance_id_s": lower.replace("__", "_s_"),
        "instance_id_1776": lower.replace("__", "_1776_"),
    }
    try:
        return template.format(**known)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        placeholders = ", ".join(f"{{{name}}}" for name in known)
        raise ValueError(f"image_template {template!r} may use {placeholders} and nothing else ({error})") from error
