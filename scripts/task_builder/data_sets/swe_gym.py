"""SWE-Gym: the images of SWE-bench, and rows with lists that bring their own test command, as no table knows these projects."""

from typing import Any

from task_builder.data_sets import PYTHON_TASKS, DataSet
from task_builder.data_sets.swebench import image, named
from task_builder.history import commits_of
from task_builder.task import Task


def row(task: Task) -> dict[str, Any]:
    """A row."""
    known = task.known
    return {
        "instance_id": task.instance_id,
        "hints_text": known["hints_text"],
        "patch": task.patch("gold"),
        "test_patch": task.patch("test"),
        "created_at": known["created_at"].replace("T", " ").removesuffix("Z"),
        "problem_statement": known["problem_statement"],
        "repo": task.repo,
        "base_commit": commits_of(task.name).base,
        "version": known["version"],
        "PASS_TO_PASS": named(task, "PASS_TO_PASS"),
        "FAIL_TO_PASS": named(task, "FAIL_TO_PASS"),
        "image_name": image(task).name,
        "test_cmd": "python -m pytest -rA -p no:cacheprovider",
        "install": "",
    }


SWE_GYM = DataSet("swe_gym", "resources_servers/swe_gym/data/example.jsonl", PYTHON_TASKS, image, row)
