"""The SWE-bench Pro profile: rows, images, script and grading, without a sandbox."""

import json
import subprocess
from typing import Any

import pytest

from resources_servers.swebench_pro.profile import SwebenchProProfile, exports
from resources_servers.swebench_pro.task_data import TaskData
from tests.shared_rows import shared_rows

PROFILE = SwebenchProProfile()
COMMIT = "a" * 40
ROW: dict[str, Any] = {
    "instance_id": "instance_org__repo-1",
    "base_commit": "0" * 40,
    "patch": "gold",
    "test_patch": "diff --git a/t.js b/t.js\n--- a/t.js\n+++ b/t.js\n@@ -1 +1 @@\n-a\n+b\n",
    "problem_statement": "p",
    "fail_to_pass": "['t.js | a \"b\"', 't.js | it\\'s']",
    "pass_to_pass": '["t.js | c"]',
    "selected_test_files_to_run": '["t.js", "u v.js"]',
    "before_repo_set_cmd": f"git reset --hard x\ngit checkout {COMMIT} -- t.js u.js\n",
    "run_script": "echo run\n",
    "parser_script": "print()\n",
    "dockerhub_tag": "org.repo-1",
    "image_digest": "sha256:" + "1" * 64,
}


def script_of(**changes: Any) -> str:
    return PROFILE.evaluation(PROFILE.task(ROW | changes, None), "abc").script


def test_which_image_a_row_gets() -> None:
    TaskData.model_validate(ROW)
    assert PROFILE.task(ROW, None).image == "jefzda/sweap-images@sha256:" + "1" * 64
    assert PROFILE.task(ROW | {"image_digest": None}, None).image == "jefzda/sweap-images:org.repo-1"
    assert PROFILE.task(ROW | {"image": "mine:1"}, None).image == "mine:1"
    assert PROFILE.task(ROW, "m/{instance_id_s}").image == "m/instance_org_s_repo-1"
    assert PROFILE.task(ROW, None).workdir == "/app"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image_digest": None, "dockerhub_tag": ""}, "neither image_digest nor dockerhub_tag"),
        ({"run_script": ""}, "run_script must not be empty"),
        ({"parser_script": None}, "parser_script must be text"),
        ({"fail_to_pass": "[]", "pass_to_pass": "[]"}, "name no test that must pass"),
        ({"selected_test_files_to_run": None}, "selected_test_files_to_run must be a list"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        script_of(**changes)


def test_files_go_to_the_run_script_as_one_argument_between_markers_on_both_streams() -> None:
    before, command, after = script_of().partition("bash /tmp/gym-run-script.sh 't.js,u v.js'\n")
    assert command
    assert before.endswith("echo '>>>>> Start Test Output'; echo '>>>>> Start Test Output' >&2\n")
    assert after == "code=$?\necho '>>>>> End Test Output'; echo '>>>>> End Test Output' >&2\nexit $code\n"
    assert PROFILE.evaluation(PROFILE.task(ROW, None), "abc").log_parser == "print()\n"


def test_tests_come_from_the_solution_or_else_from_the_test_patch() -> None:
    script = script_of()
    assert f"if ! {{ git checkout {COMMIT} -- t.js u.js; }} 2>/dev/null; then\n" in script
    assert script.index("git checkout") < script.index("git apply")
    for other in (None, "", "npm ci", f"git checkout {COMMIT}; rm -rf x"):
        script = script_of(before_repo_set_cmd=other)
        assert COMMIT not in script
        assert "git apply" in script


def test_env_lines_are_exported() -> None:
    dockerfile = """FROM x
ENV A=1 B="two words"
  ENV OLD some old words
ENV LONG=a \\
    MORE=b
RUN ENVIRONMENT=no
# ENV C=comment
ENV PATH="/x:$PATH"
"""
    said = 'echo "$A|$B|$OLD|$LONG|$MORE|${C-unset}|${ENVIRONMENT-unset}|${PATH%%:*}"'
    done = subprocess.run(["bash", "-c", "\n".join([*exports(dockerfile), said])], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1|two words|some old words|a|b|unset|unset|/x"


def grade(*tests: tuple[str, str]) -> Any:
    parsed = json.dumps({"tests": [{"name": name, "status": status} for name, status in tests]})
    return PROFILE.grade(PROFILE.task(ROW, None), parsed)


def test_all_required_tests_must_have_passed() -> None:
    passed = [('t.js | a "b"', "PASSED"), ("t.js | it's", "PASSED"), ("t.js | c", "PASSED")]
    assert grade(*passed, ("t.js | other", "FAILED")).resolved
    assert (grade(*passed[:2]).failed, grade(*passed[:2]).definitely_failed) == (("t.js | c",), ())
    for status, surely in (("FAILED", True), ("ERROR", True), ("SKIPPED", False), ("PENDING", False)):
        for tests in ([*passed, ("t.js | c", status)], [("t.js | c", status), *passed]):
            found = grade(*tests)
            assert (found.resolved, found.failed) == (False, ("t.js | c",)), "the worse of two counts"
            assert found.statuses["t.js | c"] == status
            assert bool(found.definitely_failed) is surely


@pytest.mark.parametrize("output", ["", "[]", "{}", '{"tests": [{"name": "x"}]}', '{"tests": [1]}'])
def test_a_result_of_another_form_is_no_result(output: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        PROFILE.grade(PROFILE.task(ROW, None), output)


def test_published_rows() -> None:
    for row in shared_rows("swebench_pro.jsonl"):
        TaskData.model_validate(row)
        task = PROFILE.task(row, None)
        assert PROFILE.grade(task, json.dumps({"tests": [{"name": test, "status": "PASSED"} for test in task.required]})).resolved
        script = PROFILE.evaluation(task, "HEAD").script
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
        assert row["before_repo_set_cmd"].strip().splitlines()[-1] in script
