"""Reads what `pytest -rA` prints, so that tests of SWE servers need no `swebench` package."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gym.swe.profile import Evaluation, Grade, Task


class PytestProfile:
    """Rows with an `eval_script` and an `image` of their own."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        for name in ("instance_id", "image", "eval_script"):
            if not isinstance(row.get(name), str):
                raise ValueError(f"{name} must be text")
        required = tuple(json.loads(row["FAIL_TO_PASS"]) + json.loads(row["PASS_TO_PASS"]))
        setup, hide = tuple(row.get("setup", ())), tuple(row.get("hide", ()))
        workdir = row.get("workdir", "/testbed")
        return Task(row["instance_id"], row["image"], workdir, row["patch"], row["test_patch"], required, row, setup, hide)

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        return Evaluation(task.row["eval_script"], ">>>>> Start Test Output", ">>>>> End Test Output")

    def grade(self, task: Task, output: str) -> Grade:
        found = {name: status for status, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", output, re.MULTILINE)}
        failed = tuple(test for test in task.required if found.get(test) != "PASSED")
        return Grade(not failed, found, failed, tuple(test for test in failed if test in found))
