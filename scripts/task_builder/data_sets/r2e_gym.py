"""R2E-Gym: the repository in /testbed with a `.venv`, its runner beside it, and the tests, which no row has, at the root of the image."""

import json
from typing import Any

from task_builder.data_sets import PYTHON_TASKS, DataSet
from task_builder.history import commits_of, tested_file
from task_builder.images import Image
from task_builder.task import Task

_WARNINGS = "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning'"
_RUNNER = f"{_WARNINGS} .venv/bin/python -W ignore -m pytest -rA -p no:cacheprovider r2e_tests\n"
_VENV = r"""
mkdir -p .venv/bin
ln -s /usr/bin/python3 .venv/bin/python
echo /.venv/ >>.git/info/exclude
"""


def image(task: Task) -> Image:
    """With the tests as they are after the test patch, under names that tell nothing."""
    tests = {f"/r2e_tests/test_{number}.py": (tested_file(task.name, path), 0o644) for number, path in enumerate(task.test_files, 1)}
    files = {**tests, "/testbed/run_tests.sh": (_RUNNER, 0o644)}
    return Image(f"gym-test/{task.name}:r2e", task, "/testbed", files, _VENV)


def row(task: Task) -> dict[str, Any]:
    """A row; `instance_id` and `patch` are those that preparing the data set adds."""
    names = [test.partition("::")[2].replace("::", ".") for test in [*task.known["FAIL_TO_PASS"], *task.known["PASS_TO_PASS"]]]
    commit = commits_of(task.name).tests
    return {
        "instance_id": f"{task.name}_final_{commit[:12]}",
        "repo_name": task.name,
        "docker_image": image(task).name,
        "commit_hash": commit,
        "problem_statement": f"[ISSUE]\n{task.known['problem_statement']}\n[/ISSUE]",
        "expected_output_json": json.dumps(dict.fromkeys(sorted(names), "PASSED"), ensure_ascii=False),
        "patch": task.patch("gold"),
    }


R2E_GYM = DataSet("r2e_gym", "resources_servers/r2e_gym/data/example.jsonl", PYTHON_TASKS, image, row)
