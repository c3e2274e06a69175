"""Runs in the server's own environment: one JSON call a line on stdin, one JSON answer a line on stdout."""

import json
import sys
from typing import Any

from gym.swe.profile import Task
from gym.swe.rows import test_names
from resources_servers.swebench import profile as module

PROFILE = module.SwebenchProfile()


def task_of(row: dict[str, Any]) -> Task:
    return PROFILE.task(row, None)


def answer(call: dict[str, Any]) -> Any:
    row = call.get("row", {})
    match call["call"]:
        case "test_names":
            return test_names(row, "FAIL_TO_PASS")
        case "task":
            task = PROFILE.task(row, call.get("image_template"))
            return {"image": task.image, "required": task.required, "workdir": task.workdir, "gold": task.gold_patch}
        case "evaluation":
            return PROFILE.evaluation(task_of(row), call.get("base", "HEAD")).script
        case "grade":
            grade = PROFILE.grade(task_of(row), call["output"])
            return {"resolved": grade.resolved, "statuses": grade.statuses, "failed": grade.failed, "definite": grade.definitely_failed}
    raise AssertionError(call)


for line in sys.stdin:
    try:
        said = {"value": answer(json.loads(line))}
    except ValueError as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
