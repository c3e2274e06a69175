"""The R2E-Gym profile: rows, script and the strict rule, without a sandbox."""

import json
from typing import Any

import pytest

from resources_servers.r2e_gym.profile import R2eGymProfile, expected, statuses
from resources_servers.r2e_gym.task_data import TaskData

PROFILE = R2eGymProfile()
EXPECTED = {"test_a": "PASSED", "C.test_b": "PASSED", "\x1b[1mtest_c\x1b[0m - ValueError": "FAILED"}
ROW: dict[str, Any] = {
    "instance_id": "scrapy__1",
    "repo_name": "scrapy",
    "docker_image": "namanjain12/scrapy_final:0123",
    "commit_hash": "0123",
    "problem_statement": "p",
    "expected_output_json": json.dumps(EXPECTED),
}
SUMMARY = "x\n== short test summary info ==\nPASSED r2e_tests/test_1.py::test_a\nPASSED r2e_tests/test_1.py::C::test_b\n"
KNOWN = "FAILED r2e_tests/test_1.py::\x1b[1mtest_c\x1b[0m - ValueError: PASSED\n=== 1 failed, 2 passed ===\n"


def test_a_row_is_read() -> None:
    TaskData.model_validate(ROW)
    task = PROFILE.task(ROW, None)
    assert (task.image, task.workdir, task.gold_patch, task.test_patch) == ("namanjain12/scrapy_final:0123", "/testbed", "", "")
    assert PROFILE.task(ROW | {"patch": "gold"}, "m/{instance_id_s}").image == "m/scrapy_s_1"
    assert PROFILE.task(ROW | {"patch": "gold"}, None).gold_patch == "gold"
    assert set(task.required) == {"test_a", "C.test_b", "test_c"}
    assert PROFILE.task(ROW | {"expected_output_json": EXPECTED}, None).required == task.required


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"docker_image": None}, "docker_image must be text"),
        ({"expected_output_json": "{"}, "is no JSON"),
        ({"expected_output_json": "{}"}, "at least one test"),
        ({"expected_output_json": '{"a": 1}'}, "at least one test"),
        ({"expected_output_json": None}, "at least one test"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PROFILE.task(ROW | changes, None)


def test_what_the_grader_needs_is_hidden_wherever_it_may_be() -> None:
    hidden = set(PROFILE.task(ROW, None).hide)
    for name in ("r2e_tests", "run_tests.sh"):
        assert {name, f"/{name}", f"/root/{name}"} <= hidden
    assert {"syn_issue.json", "execution_result.json", "parsed_commit.json", "modified_files.json", "modified_entities.json"} <= hidden
    assert {"expected_test_output.json", "/expected_test_output.json"} <= hidden


def test_tests_are_linked_for_the_run_only() -> None:
    evaluation = PROFILE.evaluation(PROFILE.task(ROW, None), "abc")
    assert evaluation.sentinel_folder == "/r2e_tests"
    before, _, rest = evaluation.script.partition(">>>>> Start Test Output")
    assert "ln -s /r2e_tests r2e_tests" in before
    assert "bash /run_tests.sh" in rest


@pytest.mark.parametrize(
    ("output", "failed", "definite"),
    [
        (SUMMARY + KNOWN, (), ()),
        (SUMMARY + KNOWN.replace("FAILED", "PASSED"), ("test_c",), ()),
        (SUMMARY, ("test_c",), ()),
        (SUMMARY + KNOWN + "PASSED r2e_tests/test_1.py::test_d\n", ("test_d",), ()),
        (SUMMARY + KNOWN + "ERROR r2e_tests/test_1.py::test_d - x\n", ("test_d",), ("test_d",)),
        (SUMMARY.replace("PASSED r2e_tests/test_1.py::test_a", "FAILED r2e_tests/test_1.py::test_a - PASSED") + KNOWN, ("test_a",), ("test_a",)),
        ("PASSED r2e_tests/test_1.py::test_a\n", ("test_a", "C.test_b", "test_c"), ()),
    ],
)
def test_the_maps_must_be_equal(output: str, failed: tuple[str, ...], definite: tuple[str, ...]) -> None:
    grade = PROFILE.grade(PROFILE.task(ROW, None), output)
    assert (grade.resolved, grade.failed, grade.definitely_failed) == (not failed, failed, definite)


def test_a_runner_of_unittests_is_read_too() -> None:
    assert statuses("==== short test summary info ====\nFAILED r2e_tests.test_1::C::test_a\n= 1 failed in 0.1s =\n") == {"C.test_a": "FAILED"}
    assert expected(ROW)["test_c"] == "FAILED"
