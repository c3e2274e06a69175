"""Scale-SWE: the repository in /workspace/<name> with the solution checked out, and rows that say how to go back to before it.

Rows bring their tests as a patch, or as one file of their own; there are examples of both.
"""

import json
from typing import Any

from task_builder.data_sets import PYTHON_TASKS, DataSet
from task_builder.history import commits_of, tested_file
from task_builder.images import Image
from task_builder.task import Task

_AS_A_FILE = ("calc", "ttlcache")
_SCRIPT = "test_fail_to_pass.py"


def image(task: Task) -> Image:
    """With the branch of the solution checked out, and a `python` on the path."""
    script = f"ln -s /usr/bin/python3 /usr/local/bin/python\ngit checkout -q {task.known['history']['branch']}"
    return Image(f"gym-test/{task.name}:scale", task, f"/workspace/{task.name}", script=script)


def row(task: Task) -> dict[str, Any]:
    """A row."""
    as_a_file = task.name in _AS_A_FILE
    must_turn: list[str] = task.known["FAIL_TO_PASS"]
    return {
        "instance_id": f"{task.name}_{task.name}_pr1",
        "repo": task.name,
        "language": "python",
        "workdir": image(task).workdir,
        "image_url": image(task).name,
        "patch": task.patch("gold"),
        "pre_commands": " && ".join(_back_to(commits_of(task.name).base)) + "\\n",
        "problem_statement": task.known["problem_statement"],
        "f2p_patch": "" if as_a_file else task.patch("test"),
        "f2p_script": tested_file(task.name, task.test_files[0]) if as_a_file else "",
        "FAIL_TO_PASS": json.dumps(
            [f"{_SCRIPT}::{test.partition('::')[2]}" if as_a_file else test for test in must_turn], ensure_ascii=False
        ),
        "PASS_TO_PASS": json.dumps(task.known["PASS_TO_PASS"], ensure_ascii=False),
    }


def _back_to(base: str) -> list[str]:
    """To the base commit, on a branch of its own, with the other branches and tags gone."""
    return [
        "git clean -fd -e '.venv'",
        f"git checkout {base} -f",
        "git checkout -b scaleswe",
        "rm -f .git/packed-refs",
        "find .git/refs/heads -type f ! -name 'scaleswe' -delete",
        "rm -rf .git/refs/tags .git/refs/remotes",
        "git reflog expire --expire=now --all",
        "git gc --quiet --prune=now",
    ]


SCALE_SWE = DataSet("scale_swe", "resources_servers/scale_swe/data/example.jsonl", PYTHON_TASKS, image, row)
