"""Runs that are read by a data set's own parser, without a sandbox: when an empty result speaks against the patch."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gym.protocol.verdicts import Masked, Scored
from gym.sandbox.spec import ExecResult
from gym.swe.grading import TestLog, read_log
from gym.swe.outcomes import verdict_of
from gym.swe.profile import Evaluation, Grade, Task, grade_required

TASK = Task("i", "img", "/app", "", "", ("a",), {})
BUILD_BROKE = "start\ncannot find symbol\nend\n"


class JsonProfile:
    """The parser's result is a map."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        return TASK

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        return Evaluation("")

    def grade(self, task: Task, output: str) -> Grade:
        return grade_required(task, json.loads(output))


def verdict(stdout: str, parsed: str, *, stderr: str = "start\nend\n", code: int = 1, error: Any = None) -> Scored | Masked:
    log = TestLog(ExecResult(stdout, stderr, code, error), Evaluation("", "start", "end", log_parser="x"), None, {})
    return verdict_of(read_log(JsonProfile(), TASK, log, parsed), {})


def test_a_result_gives_a_reward() -> None:
    for status, reward in (("PASSED", 1.0), ("FAILED", 0.0)):
        found = verdict("start\nok\nend\n", json.dumps({"a": status}))
        assert isinstance(found, Scored)
        assert found.reward == reward


def test_a_run_without_any_result_that_came_to_its_end_is_a_zero() -> None:
    for stdout, stderr in ((BUILD_BROKE, "start\nend\n"), ("start\nend\n", BUILD_BROKE)):
        found = verdict(stdout, "{}", stderr=stderr)
        assert isinstance(found, Scored), found
        assert (found.reward, found.fields["evaluation_completed"], found.fields["failed_required_tests"]) == (0.0, True, ["a"])


@pytest.mark.parametrize(
    ("stdout", "changes"),
    [
        ("start\nend\n", {}),
        (BUILD_BROKE, {"code": 137}),
        (BUILD_BROKE, {"error": "timeout", "code": 124}),
        ("start\ncannot find symbol\n", {}),
        ("start\nnpm ERR! getaddrinfo ENOTFOUND registry.example.com\nend\n", {}),
        (BUILD_BROKE, {"stderr": "start\ncurl: (6) Could not resolve host: example.com\nend\n"}),
        ("error: patch failed: a.py:1\n" + BUILD_BROKE, {}),
        (BUILD_BROKE, {"stderr": "error: a.py: patch does not apply\nstart\nend\n"}),
    ],
)
def test_otherwise_nothing_is_known(stdout: str, changes: dict[str, Any]) -> None:
    assert isinstance(verdict(stdout, "{}", **changes), Masked)


def test_a_result_that_is_none_is_masked() -> None:
    assert isinstance(verdict(BUILD_BROKE, "not json"), Masked)
