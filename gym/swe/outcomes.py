"""From what happened at grading to a verdict: the outcome table of SWE tasks.

The rule behind the table: a zero needs evidence about the patch. An empty patch, one that does not
apply, and a test that was seen to fail are evidence; a sandbox that broke, or output that cannot be
read, is not, and is masked.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gym.protocol.verdicts import Masked, Scored, Verdict
from gym.swe.profile import Grade

OUTPUT_CHARACTERS = 100_000
"""How much of the test output goes into the row: its end."""
PATCH_BYTES = 16 * 2**20
"""The longest patch that goes into the row."""
RESULT_CHARACTERS = 1_000_000
"""How much of the single tests' statuses goes into the row."""


@dataclass(frozen=True)
class Patch:
    """What the agent left. `source` is worktree, committed, golden, stored, or none for an empty one."""

    data: bytes
    source: str
    error: str | None = None
    """Why nothing could be captured, where the sandbox itself was well."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is to be said about it."""

    def row(self, include: bool) -> dict[str, Any]:
        """The patch in the row; with `include` false, or where it is longer than PATCH_BYTES, only its digest and size.

        A patch that is not UTF-8 stands there twice: readable, and exact as `model_patch_base64`.
        """
        found: dict[str, Any] = {
            "patch_source": self.source,
            "model_patch_sha256": hashlib.sha256(self.data).hexdigest(),
            "model_patch_bytes": len(self.data),
            **self.fields,
        }
        if include and len(self.data) <= PATCH_BYTES:
            found["model_patch"] = self.data.decode(errors="replace")
            if found["model_patch"].encode() != self.data:
                found["model_patch_base64"] = base64.b64encode(self.data).decode()
        if self.error:
            found["patch_capture_error"] = self.error
        return found


def stored_patch(row: Mapping[str, Any]) -> bytes | None:
    """The patch that an earlier row carries; None if it carries none."""
    text, exact = row.get("model_patch"), row.get("model_patch_base64")
    if isinstance(exact, str):
        try:
            return base64.b64decode(exact, validate=True)
        except ValueError:
            return None
    return text.encode(errors="surrogateescape") if isinstance(text, str) else None


@dataclass(frozen=True)
class GradingRun:
    """One try at grading. `grade` is None where nothing could be read; `problem` then says why."""

    patch_applied: bool | None
    """None where it did not come to that."""
    grade: Grade | None = None
    timed_out: bool = False
    output: str = ""
    problem: str | None = None
    problem_kind: str = "verifier_error"
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def conclusive(self) -> bool:
        """Whether this try allows a verdict."""
        if self.patch_applied is False:
            return True
        if self.grade is None:
            return False
        return not self.timed_out or bool(self.grade.definitely_failed)


def verdict_of(run: GradingRun, base: Mapping[str, Any]) -> Verdict:
    """The verdict of the last try; `base` holds the fields that every outcome has."""
    fields: dict[str, Any] = {
        **base,
        **run.fields,
        "evaluation_completed": run.conclusive,
        **({} if run.patch_applied is None else {"patch_applied": run.patch_applied}),
        "resolved": False,
        "test_output": run.output[-OUTPUT_CHARACTERS:],
    }
    if run.grade is not None:
        fields |= {**run.grade.fields, "test_count": len(run.grade.statuses), "test_results": _bounded(run.grade)}
    if run.timed_out:
        fields["eval_timed_out"] = True
    if not run.conclusive:
        reason = run.problem or "the tests ran into their time-out with no required test seen to fail"
        return Masked(run.problem_kind, reason, fields)
    resolved = run.grade is not None and run.grade.resolved and not run.timed_out
    fields["resolved"] = resolved
    return Scored(1.0 if resolved else 0.0, fields)


def _bounded(grade: Grade) -> dict[str, str]:
    """The statuses, required tests that failed first, as many as fit."""
    chosen: dict[str, str] = {}
    room = RESULT_CHARACTERS
    for test in dict.fromkeys([*(test for test in grade.failed if test in grade.statuses), *grade.statuses]):
        status = grade.statuses[test]
        room -= len(test) + len(status)
        if room < 0:
            break
        chosen[test] = status
    return chosen


def nothing_to_grade(base: Mapping[str, Any]) -> Scored:
    """The verdict on an empty patch: no test needs to run to know that nothing was solved."""
    return Scored(0.0, {**base, "evaluation_completed": True, "patch_applied": False, "resolved": False, "test_output": ""})
