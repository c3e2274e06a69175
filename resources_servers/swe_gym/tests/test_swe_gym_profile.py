"""The SWE-Gym profile: its table, rows, script and grading, without a sandbox."""

from typing import Any

import pytest

from gym.swe.sentinel import plant
from resources_servers.swe_gym.profile import SPECS, SweGymProfile
from resources_servers.swe_gym.task_data import TaskData
from tests.shared_rows import shared_rows

PROFILE = SweGymProfile()


def touching(*files: str, body: str = "@@ -1 +1 @@\n-a\n+b\n") -> str:
    return "".join(f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n{body}" for file in files)


ROW: dict[str, Any] = {
    "instance_id": "getmoto__moto-1",
    "repo": "getmoto/moto",
    "version": "5.0",
    "base_commit": "0" * 40,
    "patch": "gold",
    "test_patch": touching("tests/test_a.py", "tests/data.json", "tests/test_b.py"),
    "problem_statement": "p",
    "FAIL_TO_PASS": ["tests/test_a.py::test_x[a: str = None]", "tests/test_a.py::test_y"],
    "PASS_TO_PASS": '["tests/test_b.py::test_z"]',
}


def script_of(**changes: Any) -> str:
    return PROFILE.evaluation(PROFILE.task(ROW | changes, None), "abc").script


def test_a_row_is_read() -> None:
    TaskData.model_validate(ROW)
    task = PROFILE.task(ROW, None)
    assert (task.image, task.workdir) == ("xingyaoww/sweb.eval.x86_64.getmoto_s_moto-1:latest", "/testbed")
    assert task.required == ("tests/test_a.py::test_x[a:", "tests/test_a.py::test_y", "tests/test_b.py::test_z")
    assert PROFILE.task(ROW | {"image_name": "mine:1"}, None).image == "mine:1"
    assert PROFILE.task(ROW | {"image_name": "mine:1"}, "m/{instance_id}").image == "m/getmoto__moto-1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "99"}, "no way to test getmoto/moto 99, and the row has no test_cmd"),
        ({"repo": "my/own", "test_cmd": " "}, "no way to test my/own"),
        ({"test_patch": ""}, "test_patch must not be empty"),
        ({"test_patch": touching("tests/data.json")}, "leaves no file with tests"),
        ({"test_patch": touching("tests/test_a.py", body="deleted file mode 100644\n")}, "leaves no file with tests"),
        ({"PASS_TO_PASS": None}, "PASS_TO_PASS"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        script_of(**changes)


def test_the_table_holds_the_eleven_repositories_of_the_data_set() -> None:
    repositories = {repo for repo, _ in SPECS}
    assert len(repositories) == 11
    assert all(repo == repo.lower() for repo in repositories)
    for spec in SPECS.values():
        assert "pytest" in spec["test_cmd"]
        assert "-rA" in spec["test_cmd"].split()
    assert SPECS["python/mypy", "1.7"]["test_cmd"] == "pytest -rA -k"
    assert SPECS["python/mypy", "1.6"]["test_cmd"] == "pytest -n0 -rA -k"


def test_the_script_runs_the_test_files_in_the_environment() -> None:
    lines = script_of().splitlines()
    assert lines[-5:-3] == [">>>>> Start Test Output".join(("echo '", "'")), "pytest -n0 -rA tests/test_a.py tests/test_b.py"]
    places = [next(n for n, line in enumerate(lines) if part in line) for part in ("conda activate testbed", "pip install", "git apply")]
    assert places == sorted(places)
    assert "PYTHONPATH" in script_of(repo="conan-io/conan", version="2.1")
    assert "pip install" not in script_of(repo="conan-io/conan", version="2.1")
    assert "pytest -rA tests" in script_of(repo="Project-MONAI/MONAI", version="1.0")
    own = script_of(repo="my/own", version="1", test_cmd="python -m pytest -rA", install="make")
    assert "\n{ make\n}" in own
    assert "python -m pytest -rA tests/test_a.py tests/test_b.py\n" in own


def test_every_command_on_files_has_a_place_for_the_sentinel() -> None:
    for repo, version in SPECS:
        evaluation = PROFILE.evaluation(PROFILE.task(ROW | {"repo": repo, "version": version}, None), "abc")
        _, sentinel = plant(evaluation, "n")
        assert (sentinel is None) is (repo == "python/mypy"), repo


def test_mypy_selects_its_cases() -> None:
    cases = touching("test-data/unit/check-a.test", body="@@ -1 +1,2 @@\n [case testOne]\n+[case testTwo-only_when_cached]\n")
    assert "\npytest -n0 -rA -k 'testOne or testTwo-only_when_cached'\n" in script_of(repo="python/mypy", version="1.4", test_patch=cases)
    assert "\npytest -n0 -rA -k ''\n" in script_of(repo="python/mypy", version="1.4"), "without a case, all of them, as upstream"


def test_ids_are_cut_at_the_first_blank_on_both_sides() -> None:
    task = PROFILE.task(ROW, None)
    passed = "PASSED tests/test_a.py::test_x[a: str = None]\nXFAIL tests/test_a.py::test_y - known\ntests/test_b.py::test_z PASSED [ 99%]\n"
    assert PROFILE.grade(task, passed).resolved
    worse = PROFILE.grade(task, passed + "FAILED tests/test_a.py::test_x[a: int] - AssertionError\n")
    assert (worse.resolved, worse.definitely_failed) == (False, ("tests/test_a.py::test_x[a:",)), "one of two that are cut alike failed"
    skipped = PROFILE.grade(task, passed + "XPASS tests/test_b.py::test_z\n")
    assert (skipped.resolved, skipped.failed) == (False, ("tests/test_b.py::test_z",))
    assert PROFILE.grade(task, passed.partition("\n")[2]).definitely_failed == ()


def test_published_rows() -> None:
    for row in shared_rows("swe_gym.jsonl"):
        TaskData.model_validate(row)
        task = PROFILE.task(row, None)
        assert PROFILE.grade(task, "".join(f"PASSED {test}\n" for test in task.required)).resolved
        assert "pytest -n0 -rA tests/" in PROFILE.evaluation(task, "HEAD").script
