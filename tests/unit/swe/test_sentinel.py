"""Where a sentinel is planted, and what is believed with one."""

from collections.abc import Mapping
from typing import Any

import pytest

from gym.protocol.verdicts import Masked, Scored
from gym.sandbox.spec import ExecResult
from gym.swe.grading import TestLog, read_log, with_nonce
from gym.swe.outcomes import verdict_of
from gym.swe.profile import END, START, Evaluation, Grade, Task, grade_required
from gym.swe.pytest_logs import pytest_statuses
from gym.swe.sentinel import Sentinel, evidence, plant, without_sentinel

SENTINEL = Sentinel("test_gym_1", "tests/test_gym_1.py")
TASK = Task("i", "img", "/testbed", "", "", ("tests/a.py::test_x",), {})
RULE = "=" * 10
OWN = "FAILED tests/test_gym_1.py::test_gym_1 - AssertionError: this test must fail"
PASS = "PASSED tests/a.py::test_x"


@pytest.mark.parametrize(
    ("line", "planted"),
    [
        ("pytest -rA tests/a.py", "pytest -rA tests/a.py tests/test_gym_1.py"),
        ("python -m pytest -rA -p no:cacheprovider a.py  ", "python -m pytest -rA -p no:cacheprovider a.py test_gym_1.py  "),
        (
            "X=1 pytest --no-header -rA --tb=no t/a.py t/b/c.py::test_x",
            "X=1 pytest --no-header -rA --tb=no t/a.py t/b/c.py::test_x t/b/test_gym_1.py",
        ),
        ("pytest -rA tests", None),
        ("pytest tests/a.py", None),
        ('pytest -rA -k "a or b"', None),
        ("# pytest -rA tests/a.py", None),
        ("tox -epy39 -v -- tests/a.py", None),
        ("pytest -rA /abs/a.py", None),
        ("pytest -rA a.py\npytest -rA b.py", None),
    ],
)
def test_where_it_is_planted(line: str, planted: str | None) -> None:
    script = f"cat <<'X'\n pytest -rA in/a/patch.py\nX\necho '{START}'\n{line}\necho '{END}'\n"
    evaluation, sentinel = plant(Evaluation(script), "1")
    assert (sentinel is not None) is (planted is not None)
    assert evaluation.script == script.replace(line, planted or line)
    if sentinel is not None:
        assert sentinel.path in (planted or "")
        assert f"def {sentinel.name}(" in sentinel.write


def test_a_profile_can_name_the_folder() -> None:
    evaluation, sentinel = plant(Evaluation("bash run_tests.sh", sentinel_folder="r2e_tests"), "1")
    assert evaluation.script == "bash run_tests.sh"
    assert sentinel == Sentinel("test_gym_1", "r2e_tests/test_gym_1.py")


def test_markers_and_names_are_made_anew() -> None:
    found = [with_nonce(Evaluation(f"echo '{START}'\npytest -rA a.py\necho '{END}'"), sentinel=True) for _ in range(2)]
    assert len({evaluation.script for evaluation, _ in found}) == 2
    for evaluation, sentinel in found:
        assert sentinel is not None
        assert all(word in evaluation.script for word in (evaluation.start_marker, evaluation.end_marker, sentinel.path))
    assert with_nonce(Evaluation("pytest -rA a.py"), sentinel=False)[1] is None


def summary(*lines: str) -> str:
    return "\n".join([f"{RULE} short test summary info {RULE}", *lines, f"{RULE} 1 failed, 1 passed in 0.1s {RULE}", ""])


class Pytest:
    """Reads `-rA`."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        return TASK

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        return Evaluation("")

    def grade(self, task: Task, output: str) -> Grade:
        return grade_required(task, pytest_statuses(output, task.required))


def verdict(output: str, error: Any = None) -> Scored | Masked:
    log = TestLog(ExecResult(f"{START}\n{output}{END}\n", "", 1, error), Evaluation(""), SENTINEL, {})
    return verdict_of(read_log(Pytest(), TASK, log), {})


def test_a_genuine_pass_is_believed() -> None:
    found = verdict(summary(PASS, OWN))
    assert isinstance(found, Scored)
    assert (found.reward, found.fields["test_results"]) == (1.0, {"tests/a.py::test_x": "PASSED"})
    assert "forged_results" not in found.fields


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (summary(PASS, OWN.replace("FAILED", "PASSED")), "a test that must fail"),
        (summary("FAILED tests/a.py::test_x - x", OWN) + summary(PASS), "pytest's own summary does not have"),
        (summary("ERROR tests/a.py", OWN) + f"{PASS}\n", "pytest's own summary does not have"),
        (f"{PASS}\n" + summary(OWN), "pytest's own summary does not have"),
        (f"{RULE} short test summary info {RULE}\n{OWN}\n1 failed in 0.1s\n{PASS}\n", "pytest's own summary does not have"),
        (f"{RULE} short test summary info {RULE}\nFAILED tests/a.py::test_x - x\n{OWN}\n{PASS}\n", "pytest's own summary does not have"),
        (f"{PASS}\n\x1b[1m" + summary(OWN), "pytest's own summary does not have"),
    ],
)
def test_forgeries_are_zero(output: str, reason: str) -> None:
    found = verdict(output)
    assert isinstance(found, Scored), found
    assert found.reward == 0.0
    assert reason in found.fields["forged_results"]


def test_a_pass_without_evidence_is_masked() -> None:
    for output in (summary(PASS), f"{PASS}\n", f"{PASS}\n{OWN}\n"):
        found = verdict(output)
        assert isinstance(found, Masked)
        assert "must fail was not seen to fail" in found.failure_reason


def test_a_failure_needs_no_evidence() -> None:
    found = verdict(summary("FAILED tests/a.py::test_x - x"))
    assert isinstance(found, Scored)
    assert (found.reward, "forged_results" in found.fields) == (0.0, False)
    assert verdict("FAILED tests/a.py::test_x\n", "timeout").fields["eval_timed_out"] is True


def test_what_is_believed_begins_with_its_header_and_ends_with_the_failures() -> None:
    found = evidence(summary("FAILED b - x", PASS, OWN), SENTINEL)
    assert found is not None
    assert found.summaries.splitlines() == [f"{RULE} short test summary info {RULE}", PASS, "FAILED b - x"]


def test_its_lines_are_nobodys() -> None:
    assert without_sentinel(f"a\n{OWN}\ntests/test_gym_1.py F\nb", SENTINEL) == "a\nb"
    assert evidence("nothing", SENTINEL) is None


@pytest.mark.parametrize(
    ("line", "known", "statuses"),
    [
        ("PASSED t.py::a", (), {"t.py::a": "PASSED"}),
        ("FAILED t.py::a - assert 1 == 2", (), {"t.py::a": "FAILED"}),
        ("FAILED t.py::a[x - y] - assert", ("t.py::a[x - y]", "t.py::a[x"), {"t.py::a[x - y]": "FAILED"}),
        ("PASSED t.py::a[x y z]", ("t.py::a[x",), {"t.py::a[x": "PASSED"}),
        ("t.py::a PASSED                [ 50%]", (), {"t.py::a": "PASSED"}),
        ("\x1b[32mPASSED\x1b[0m t.py::\x1b[1ma\x1b[0m", (), {"t.py::a": "PASSED"}),
        ("XFAIL t.py::a - reason", (), {"t.py::a": "XFAIL"}),
        ("ERROR t.py::a\nPASSED t.py::a", (), {"t.py::a": "PASSED"}),
        ("not PASSED at all", (), {}),
    ],
)
def test_reading_pytest(line: str, known: tuple[str, ...], statuses: dict[str, str]) -> None:
    assert pytest_statuses(line, known) == statuses
