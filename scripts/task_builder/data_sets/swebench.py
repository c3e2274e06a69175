"""SWE-bench, Verified and Multilingual: the repository in /testbed, and rows that carry their own eval script."""

import json
from typing import Any

from task_builder.data_sets import PYTHON_TASKS, DataSet
from task_builder.history import commits_of
from task_builder.images import Image
from task_builder.task import END, START, Task

ACTIVATE = "source /opt/miniconda3/bin/activate\nconda activate testbed\n"


def image(task: Task) -> Image:
    """The plain image of a task."""
    return Image(f"gym-test/{task.name}:latest", task, "/testbed")


def eval_script(task: Task) -> str:
    """Restores the test files, applies the test patch, runs the tests between the markers, and restores the files again."""
    base = commits_of(task.name).base
    old = [path for path in task.test_files if path in task.files]
    new = [path for path in task.test_files if path not in task.files]
    restore = "".join([f"git checkout {base} -- {' '.join(old)}\n" if old else "", f"rm -f {' '.join(new)}\n" if new else ""])
    return f"""#!/bin/bash
set -uo pipefail
{ACTIVATE if task.base_image == "python" else ""}cd /testbed
git config --global --add safe.directory /testbed
{restore}git apply -v - <<'GYM_TEST_PATCH'
{task.patch("test").rstrip()}
GYM_TEST_PATCH
echo '{START}'
{task.test_command}
code=$?
echo '{END}'
{restore}exit $code
"""


def named(task: Task, which: str) -> list[str]:
    """The tests as the data set names them: its parser of pytest's output cuts an id at the first blank."""
    tests: list[str] = task.known[which]
    return list(dict.fromkeys(test.split()[0] for test in tests)) if "log_parser" not in task.known else tests


def row(task: Task) -> dict[str, Any]:
    """A row as Verified and Multilingual have it, with the fields that newer SWE-bench data sets add."""
    known, base = task.known, commits_of(task.name).base
    return {
        "repo": task.repo,
        "instance_id": task.instance_id,
        "base_commit": base,
        "patch": task.patch("gold"),
        "test_patch": task.patch("test"),
        "problem_statement": known["problem_statement"],
        "hints_text": known["hints_text"],
        "created_at": known["created_at"],
        "version": known["version"],
        "FAIL_TO_PASS": json.dumps(named(task, "FAIL_TO_PASS"), ensure_ascii=False),
        "PASS_TO_PASS": json.dumps(named(task, "PASS_TO_PASS"), ensure_ascii=False),
        "environment_setup_commit": base if task.base_image == "python" else "",
        "difficulty": known["difficulty"],
        "image": image(task).name,
        "eval_script": eval_script(task),
        "eval_type": "pass_and_fail",
        "log_parser": known.get("log_parser", "parse_log_pytest"),
    }


VERIFIED = DataSet("swebench", "resources_servers/swebench/data/example.jsonl", PYTHON_TASKS, image, row)
MULTILINGUAL = DataSet(
    "swebench_multilingual",
    "resources_servers/swebench/data/example_multilingual.jsonl",
    ("slug", "ring", "lines", "ini", "events"),
    image,
    row,
)
