"""Rows with an `eval_script` and an `image` of their own, read by `pytest -rA`, so that tests of SWE servers need no `swebench` package."""

from collections.abc import Mapping
from typing import Any

from gym.swe.profile import Evaluation, Grade, Task, grade_required
from gym.swe.pytest_logs import pytest_statuses
from gym.swe.rows import test_names, text


class PytestProfile:
    """The small test task, with what a test wants to be different in its row."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        for name in ("instance_id", "image", "eval_script"):
            text(row, name)
        required = tuple(test_names(row, "FAIL_TO_PASS") + test_names(row, "PASS_TO_PASS"))
        setup, hide = tuple(row.get("setup", ())), tuple(row.get("hide", ()))
        workdir = row.get("workdir", "/testbed")
        return Task(row["instance_id"], row["image"], workdir, row["patch"], row["test_patch"], required, row, setup, hide)

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        return Evaluation(task.row["eval_script"])

    def grade(self, task: Task, output: str) -> Grade:
        return grade_required(task, pytest_statuses(output, task.required), frozenset({"PASSED", "XFAIL"}))
