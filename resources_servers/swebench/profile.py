"""SWE-bench, Verified and Multilingual, as a profile: specs, scripts and log parsers are those of the `swebench` package.

`make_test_spec` of the package is not used: for many repositories it fetches requirement files from
the network. The script of the tests needs none of that.
"""

from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from swebench.harness.constants import (
    FAIL_ONLY_REPOS,
    FAIL_TO_PASS,
    MAP_REPO_VERSION_TO_SPECS,
    PASS_TO_PASS,
    EvalType,
    ResolvedStatus,
)
from swebench.harness.grading import get_eval_tests_report, get_resolution_status, test_failed
from swebench.harness.log_parsers import MAP_REPO_TO_PARSER, c, go, java, javascript, php, python, ruby, rust
from swebench.harness.test_spec.create_scripts import make_eval_script_list

from gym.swe.profile import Evaluation, Grade, Task
from gym.swe.rows import image_of, test_names, text
from resources_servers.swebench.fixups import fixed

WORKDIR = "/testbed"
IMAGE = "swebench/sweb.eval.x86_64.{instance_id_1776}:latest"

Parser = Callable[[str, Any], dict[str, str]]


def _parsers_of(*modules: ModuleType) -> dict[str, Parser]:
    return {name: value for module in modules for name, value in vars(module).items() if name.startswith("parse_log_") and callable(value)}


PARSERS = _parsers_of(c, go, java, javascript, php, python, ruby, rust)
"""Log parsers by the names that rows give them."""


class SwebenchProfile:
    """Rows of SWE-bench Verified and Multilingual, and of data sets in the same format."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. Its image is that of the template, else the row's own `image`, else the published one."""
        texts = {name: text(row, name) for name in ("instance_id", "repo", "version", "patch", "test_patch")}
        parser_of(row)
        eval_type_of(row)
        return Task(
            instance_id=texts["instance_id"],
            image=image_of(row, texts["instance_id"], image_template, IMAGE),
            workdir=WORKDIR,
            gold_patch=texts["patch"],
            test_patch=texts["test_patch"],
            required=tuple(test_names(row, FAIL_TO_PASS) + test_names(row, PASS_TO_PASS)),
            row=row,
        )

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """The row's own script where it has one, else the package's for this repository and version."""
        script = task.row.get("eval_script")
        if not script:
            repo, version = task.row["repo"], task.row["version"]
            specs = MAP_REPO_VERSION_TO_SPECS.get(repo, {}).get(version)
            if specs is None:
                raise ValueError(f"the swebench package knows no way to test {repo} {version}, and the row has no eval_script")
            commands = make_eval_script_list(dict(task.row), specs, "testbed", WORKDIR, base_commit, task.test_patch)
            script = "\n".join(["set -uxo pipefail", *fixed(repo, commands)]) + "\n"
        return Evaluation(str(script))

    def grade(self, task: Task, output: str) -> Grade:
        """Read the output with the repository's parser, and judge with the package's report."""
        # Of the test spec that parsers are given, two look at the id: those of repositories with several test runners.
        statuses = dict(parser_of(task.row)(output, SimpleNamespace(instance_id=task.instance_id)))
        kind = eval_type_of(task.row)
        wanted = {FAIL_TO_PASS: test_names(task.row, FAIL_TO_PASS), PASS_TO_PASS: test_names(task.row, PASS_TO_PASS)}
        report = get_eval_tests_report(statuses, wanted, eval_type=kind)
        failed = tuple(report[FAIL_TO_PASS]["failure"] + report[PASS_TO_PASS]["failure"])
        return Grade(
            resolved=get_resolution_status(report) == ResolvedStatus.FULL.value,
            statuses=statuses,
            failed=failed,
            definitely_failed=tuple(test for test in failed if test in statuses and test_failed(test, statuses)),
            fields={"failed_required_tests": list(failed)},
        )


def parser_of(row: Mapping[str, Any]) -> Parser:
    """The parser that the row names, else its repository's. Raises ValueError if there is none."""
    name = row.get("log_parser")
    parser = PARSERS.get(str(name)) if name else MAP_REPO_TO_PARSER.get(str(row.get("repo")))
    if parser is None:
        raise ValueError(
            f"the swebench package has no log parser {name!r}" if name else f"the package knows no way to read tests of {row.get('repo')!r}"
        )
    return parser


def eval_type_of(row: Mapping[str, Any]) -> EvalType:
    """Whether only failures are printed by the row's tests: as it says, else by its repository. Raises ValueError."""
    named = row.get("eval_type")
    if named is None:
        return EvalType.FAIL_ONLY if row.get("repo") in FAIL_ONLY_REPOS else EvalType.PASS_AND_FAIL
    try:
        return EvalType(named)
    except ValueError as error:
        raise ValueError(f"eval_type {named!r} is not one of {', '.join(kind.value for kind in EvalType)}") from error
