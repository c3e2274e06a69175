"""The Scale-SWE profile: rows, script and grading, without a sandbox."""

from typing import Any

import pytest

from resources_servers.scale_swe.profile import ScaleSweProfile
from resources_servers.scale_swe.task_data import TaskData
from tests.shared_rows import shared_rows

PROFILE = ScaleSweProfile()
ROW: dict[str, Any] = {
    "instance_id": "org_repo_pr1",
    "workdir": "/workspace/repo",
    "image_url": "aweaiteam/scaleswe:org_repo_pr1",
    "patch": "gold",
    "problem_statement": "p",
    "pre_commands": "git clean -fd && git checkout abc -f\\n",
    "f2p_patch": "",
    "f2p_script": "def test_x(): pass\n",
    "FAIL_TO_PASS": '["test_fail_to_pass.py::test_x", "tests/test_a.py::test_b[a - b c]"]',
    "PASS_TO_PASS": '["tests/test_a.py::test_b[a", "tests/test_c.py::C::test_d"]',
}


def test_a_row_is_read() -> None:
    TaskData.model_validate(ROW)
    task = PROFILE.task(ROW, None)
    assert (task.image, task.workdir, task.gold_patch) == ("aweaiteam/scaleswe:org_repo_pr1", "/workspace/repo", "gold")
    assert task.setup == ("git clean -fd && git checkout abc -f",)
    assert task.hide == ("test_fail_to_pass.py",), "what the grader writes there is no patch's"
    assert PROFILE.task(ROW | {"pre_commands": "a\\nb\\n"}, None).setup == ("a\nb",)
    assert PROFILE.task(ROW | {"pre_commands": None}, None).setup == ()
    assert PROFILE.task(ROW | {"image_url": None}, None).image == "aweaiteam/scaleswe:org_repo_pr1"
    assert PROFILE.task(ROW, "mine/{instance_id}").image == "mine/org_repo_pr1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"instance_id": ""}, "instance_id must not be empty"),
        ({"workdir": "repo"}, "workdir must be an absolute path, got 'repo'"),
        ({"FAIL_TO_PASS": "x"}, "FAIL_TO_PASS is neither"),
        ({"FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]"}, "name no test that must pass"),
        ({"f2p_script": 3}, "f2p_script must be text"),
        ({"image_url": 3}, "image_url must be the name"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PROFILE.task(ROW | changes, None)


def test_the_script_runs_each_file_with_a_required_test_once() -> None:
    script = PROFILE.evaluation(PROFILE.task(ROW, None), "abc").script
    command = "python -m pytest -rA --tb=no -p no:cacheprovider test_fail_to_pass.py tests/test_a.py tests/test_c.py\n"
    before, _, rest = script.partition(">>>>> Start Test Output")
    assert command in rest
    assert "base64 -d > test_fail_to_pass.py" in before
    assert "git apply" not in script, "there is no test patch"
    assert "git apply" in PROFILE.evaluation(PROFILE.task(ROW | {"f2p_patch": "diff --git a/x b/x\n"}, None), "abc").script
    assert "base64" not in PROFILE.evaluation(PROFILE.task(ROW | {"f2p_script": None}, None), "abc").script


def test_the_longest_known_id_is_taken_and_later_lines_win() -> None:
    task = PROFILE.task(ROW, None)
    lines = [
        "FAILED test_fail_to_pass.py::test_x - first try",
        "PASSED test_fail_to_pass.py::test_x",
        "PASSED tests/test_a.py::test_b[a - b c]",
        "PASSED tests/test_a.py::test_b[a long one]",
        "PASSED tests/test_c.py::C::test_d",
    ]
    grade = PROFILE.grade(task, "\n".join(lines))
    assert (grade.resolved, grade.failed) == (True, ())
    for status in ("FAILED", "SKIPPED", "XFAIL", "ERROR"):
        worse = PROFILE.grade(task, "\n".join([*lines[:-1], f"{status} tests/test_c.py::C::test_d"]))
        assert (worse.resolved, worse.definitely_failed) == (False, ("tests/test_c.py::C::test_d",))
    missing = PROFILE.grade(task, "\n".join(lines[:-1]))
    assert (missing.resolved, missing.failed, missing.definitely_failed) == (False, ("tests/test_c.py::C::test_d",), ())


def test_published_rows() -> None:
    for row in shared_rows("scale_swe.jsonl"):
        TaskData.model_validate(row)
        task = PROFILE.task(row, None)
        assert task.image == row["image_url"]
        assert task.setup[0].endswith("git gc --prune=now --aggressive")
        assert PROFILE.grade(task, "".join(f"PASSED {test}\n" for test in task.required)).resolved
        assert "pytest -rA" in PROFILE.evaluation(task, "HEAD").script
