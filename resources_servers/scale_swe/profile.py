"""Scale-SWE as a profile: pytest on the files of the required tests, after the row's own preparation."""

import posixpath
from collections.abc import Mapping
from typing import Any

from gym.swe.eval_scripts import apply_test_patch, marked, words, write_file
from gym.swe.profile import Evaluation, Grade, Task, grade_required
from gym.swe.pytest_logs import pytest_statuses
from gym.swe.rows import image_of, required_tests, text, word

IMAGE = "aweaiteam/scaleswe:{instance_id}"
SCRIPT = "test_fail_to_pass.py"
"""Where the row's own test stands, below the work tree. It is the grader's: no patch may bring it."""


class ScaleSweProfile:
    """Rows of Scale-SWE."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. `pre_commands`, which check out the parent commit, are run in every sandbox of the task."""
        instance_id, workdir = word(row, "instance_id"), word(row, "workdir")
        if not posixpath.isabs(workdir):
            raise ValueError(f"workdir must be an absolute path, got {workdir!r}")
        # They are published with a backslash and an n where a line ends.
        prepare = text(row, "pre_commands", "").replace("\\n", "\n").strip()
        text(row, "f2p_script", "")
        return Task(
            instance_id=instance_id,
            image=image_of(row, instance_id, image_template, IMAGE, field="image_url"),
            workdir=workdir,
            gold_patch=text(row, "patch", ""),
            test_patch=text(row, "f2p_patch", ""),
            required=required_tests(row, "FAIL_TO_PASS", "PASS_TO_PASS"),
            row=row,
            setup=(prepare,) if prepare else (),
            hide=(SCRIPT,),
        )

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """The test patch, the row's own test, and pytest on every file that holds a required test."""
        files = list(dict.fromkeys(test.split("::")[0] for test in task.required))
        script = text(task.row, "f2p_script", "")
        # pytest runs nothing at all if one file is missing: without this, a patch that deletes one could never be judged.
        bring_back = f'[ -e "$name" ] || GIT_LITERAL_PATHSPECS=1 git checkout -q {base_commit} -- "$name" 2>/dev/null || :'
        steps = [
            f"cd -- {words([task.workdir])} || exit 97",
            f"for name in {words(files)}; do {bring_back}; done",
            apply_test_patch(base_commit, task.test_patch),
            *([write_file(SCRIPT, script)] if script else []),
            marked(f"python -m pytest -rA --tb=no -p no:cacheprovider {words(files)}"),
        ]
        return Evaluation("\n".join(steps) + "\n")

    def grade(self, task: Task, output: str) -> Grade:
        """Every required test must have passed."""
        return grade_required(task, pytest_statuses(output, task.required))
