"""Runs in the server's own environment: one JSON call a line on stdin, one JSON answer a line on stdout."""

import json
import sys
from pathlib import Path
from typing import Any

from swebench.harness.constants import MAP_REPO_TO_EXT, MAP_REPO_VERSION_TO_SPECS
from swebench.harness.grading import get_eval_report, get_logs_eval
from swebench.harness.log_parsers import MAP_REPO_TO_PARSER
from swebench.harness.test_spec.test_spec import TestSpec
from swebench.harness.utils import get_predictions_from_file

from gym.protocol.verdicts import Scored
from gym.sandbox.spec import ExecResult
from gym.swe.grading import TestLog, read_log
from gym.swe.outcomes import verdict_of
from gym.swe.profile import Task
from gym.swe.rows import test_names
from resources_servers.swebench import profile as module

PROFILE = module.SwebenchProfile()


def task_of(row: dict[str, Any]) -> Task:
    return PROFILE.task(row, None)


def theirs(row: dict[str, Any], path: str) -> dict[str, Any]:
    """The package's own report on a log, and the statuses it read. The spec is made by hand: `make_test_spec` asks the network."""
    tests = (row["FAIL_TO_PASS"], row["PASS_TO_PASS"])
    spec = TestSpec(
        row["instance_id"], row["repo"], row["version"], [], [], [], "x86_64", *tests, language="py", docker_specs={}, namespace=None
    )
    try:
        statuses, _ = get_logs_eval(spec, path)
        prediction = {"instance_id": row["instance_id"], "model_name_or_path": "m", "model_patch": "p"}
        report = get_eval_report(spec, prediction, path, True)[row["instance_id"]]
    except UnicodeDecodeError:
        return {"readable": False}
    return {"readable": True, "resolved": report["resolved"], "statuses": statuses}


def ours(row: dict[str, Any], path: str) -> dict[str, Any]:
    """What the server makes of the same log, but for the sentinel, which no old log has."""
    result = ExecResult(Path(path).read_bytes().decode(errors="replace"), "", 0)
    task = task_of(row)
    run = read_log(PROFILE, task, TestLog(result, PROFILE.evaluation(task, "HEAD"), None, {}))
    verdict = verdict_of(run, {})
    shown = {"scored": isinstance(verdict, Scored), "resolved": verdict.fields["resolved"], "problem": run.problem}
    return {**shown, "statuses": dict(run.grade.statuses) if run.grade else {}}


def answer(call: dict[str, Any]) -> Any:
    row = call.get("row", {})
    match call["call"]:
        case "predictions":
            return get_predictions_from_file(call["path"], "no data set", "test")
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
        case "known":
            specs = MAP_REPO_VERSION_TO_SPECS  # a few repositories in it have no parser, and so no rows
            return [[MAP_REPO_TO_EXT[repo], repo, version] for repo in specs if repo in MAP_REPO_TO_PARSER for version in specs[repo]]
        case "theirs":
            return theirs(row, call["path"])
        case "ours":
            return ours(row, call["path"])
    raise AssertionError(call)


for line in sys.stdin:
    try:
        said = {"value": answer(json.loads(line))}
    except ValueError as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
