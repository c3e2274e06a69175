"""From output to verdict, without a sandbox."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from gym.protocol.verdicts import Masked, Scored
from gym.sandbox.spec import ExecResult
from gym.swe.grading import TestLog, read_log
from gym.swe.outcomes import OUTPUT_CHARACTERS, RESULT_CHARACTERS, GradingRun, Patch, nothing_to_grade, stored_patch, verdict_of
from gym.swe.profile import Evaluation, Grade, Task
from gym.swe.rows import image_from_template

TASK = Task("i", "img", "/testbed", "", "", ("a", "b"), {})
START, END = "start 1", "end 1"


class WordProfile:
    """`a=PASSED b=FAILED`."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        return TASK

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        return Evaluation("", "start", "end")

    def grade(self, task: Task, output: str) -> Grade:
        if "BROKEN" in output:
            raise KeyError("parser")
        found = dict(word.split("=") for word in output.split() if "=" in word)
        failed = tuple(test for test in task.required if found.get(test) != "PASSED")
        return Grade(not failed, found, failed, tuple(test for test in failed if test in found))


def verdict(output: str, error: Any = None, truncated: bool = False) -> Scored | Masked:
    result = ExecResult(output, "", 124 if error else 0, error, truncated)
    log = TestLog(result, Evaluation("", START, END), None, {"test_time_s": 1.0})
    return verdict_of(read_log(WordProfile(), TASK, log), {"instance_id": "i"})


@pytest.mark.parametrize(
    ("output", "error", "truncated", "reward"),
    [
        (f"x {START} a=PASSED b=PASSED {END}", None, False, 1.0),
        (f"{START} a=PASSED b=FAILED {END}", None, False, 0.0),
        (f"{START} a=PASSED {END}", None, False, 0.0),
        (f"{START} a=PASSED b=PASSED {END}", None, True, 1.0),
        (f"{START} a=FAILED {END}", None, True, 0.0),
        (f"{START} a=PASSED b=FAILED", "timeout", False, 0.0),
        (f"{START} a=PASSED b=FAILED", None, False, 0.0),
        (f"error: pathspec 'x' did not match\n{START} a=PASSED b=PASSED {END}", None, False, 1.0),
    ],
)
def test_evidence_gives_a_reward(output: str, error: Any, truncated: bool, reward: float) -> None:
    found = verdict(output, error, truncated)
    assert isinstance(found, Scored), found
    assert found.reward == reward
    assert found.fields["evaluation_completed"] is True
    assert found.fields["resolved"] is (reward == 1.0)
    assert found.fields["test_time_s"] == 1.0
    assert found.fields.get("eval_timed_out", False) is (error == "timeout")


@pytest.mark.parametrize(
    ("output", "error", "truncated", "reason"),
    [
        ("", None, False, "did not start (exit 0)"),
        ("a=PASSED b=PASSED", None, False, "did not start"),
        ("start", "timeout", False, "did not start before the time-out"),
        ("start 2 a=PASSED b=PASSED end 2", None, False, "did not start"),
        (f"{START} a=PASSED b=PASSED", None, False, "without their end marker"),
        (f"{END} {START} a=PASSED b=PASSED", None, False, "without their end marker"),
        (f"{START} {END} a=PASSED b=PASSED", None, False, "no test result"),
        (f"{START} nothing", "timeout", False, "no test result could be read from the output before the time-out"),
        (f"{START} a=PASSED", "timeout", False, "time-out with no required test seen to fail"),
        (f"{START} a=PASSED b=PASSED", "timeout", False, "time-out with no required test seen to fail"),
        (f"{START} BROKEN {END}", None, False, "could not be read: KeyError"),
        (f"{START} a=PASSED {END}", None, True, "64 MiB"),
        (f"error: tests/x.py: patch does not apply\n{START} a=FAILED {END}", None, False, "test patch did not apply"),
        (f"error: corrupt patch at line 3\n{START} a=FAILED {END}", None, False, "test patch did not apply"),
        ("error: tests/x.py: already exists in working directory\n", None, False, "test patch did not apply"),
    ],
)
def test_no_evidence_is_masked(output: str, error: Any, truncated: bool, reason: str) -> None:
    found = verdict(output, error, truncated)
    assert isinstance(found, Masked), found
    assert reason in found.failure_reason
    assert found.fields["evaluation_completed"] is False
    assert found.fields["resolved"] is False


def test_what_did_not_come_to_applying_says_nothing_about_it() -> None:
    lost = verdict_of(GradingRun(None, problem="died", problem_kind="provider_unavailable"), {})
    assert isinstance(lost, Masked)
    assert lost.failure_kind == "provider_unavailable"
    assert "patch_applied" not in lost.fields
    unfit = verdict_of(GradingRun(False, output="error: no"), {})
    assert isinstance(unfit, Scored)
    assert (unfit.reward, unfit.fields["patch_applied"], unfit.fields["test_output"]) == (0.0, False, "error: no")
    assert nothing_to_grade({}).fields["patch_applied"] is False


def test_rows_stay_of_a_bounded_size() -> None:
    statuses = {f"{'x' * 1000}{number}": "PASSED" for number in range(3000)} | {"a": "FAILED"}
    run = GradingRun(True, Grade(False, statuses, ("a", "b"), ("a",)), output="y" * 3 * OUTPUT_CHARACTERS + "end")
    fields = verdict_of(run, {}).fields
    assert len(fields["test_output"]) == OUTPUT_CHARACTERS
    assert fields["test_output"].endswith("end")
    assert fields["test_count"] == 3001
    assert sum(map(len, fields["test_results"])) < RESULT_CHARACTERS
    assert fields["test_results"]["a"] == "FAILED", "required tests that failed are never left out"


@pytest.mark.parametrize("data", [b"", b"+caf\xc3\xa9\r\n", b"+caf\xe9\n", bytes(range(256)), "\ufffd".encode()])
def test_a_stored_patch_is_the_same_bytes(data: bytes) -> None:
    fields = Patch(data, "worktree").row(True)
    assert fields["model_patch_sha256"] == hashlib.sha256(data).hexdigest()
    fields["model_patch"].encode()  # can stand in JSON
    stored = stored_patch(fields)
    assert stored == data
    assert "model_patch" not in Patch(data, "worktree").row(False)


def test_no_stored_patch() -> None:
    assert stored_patch({}) is None
    assert stored_patch({"model_patch": None}) is None
    assert stored_patch({"model_patch": "x", "model_patch_base64": "not base64!"}) is None
    exact = stored_patch({"model_patch": "?", "model_patch_base64": base64.b64encode(b"\xff").decode()})
    assert exact == b"\xff"


def test_images_from_templates() -> None:
    assert image_from_template("m/{instance_id_1776}:x", "Astropy__astropy-1") == "m/astropy_1776_astropy-1:x"
    assert image_from_template("{instance_id_s}", "A__b-1") == "a_s_b-1"
    assert image_from_template("fixed:latest", "A__b-1") == "fixed:latest"
    for bad in ("{repo}", "{", "{0}", "{instance_id.x}", "{instance_id[0]}{"):
        with pytest.raises(ValueError, match="image_template"):
            image_from_template(bad, "a")
