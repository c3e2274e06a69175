"""The SWE-bench profile, asked in the server's own environment, where the `swebench` package is."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gym.config import load
from gym.config.errors import UserError
from gym.runtime.environments import environment_python

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
SHARED = Path(os.environ.get("GYM_SHARED") or REPOSITORY.parent / "shared")
ROW = {
    "instance_id": "astropy__astropy-1",
    "repo": "astropy/astropy",
    "version": "5.0",
    "base_commit": "0" * 40,
    "patch": "gold",
    "test_patch": "diff --git a/x/test_a.py b/x/test_a.py\n--- a/x/test_a.py\n+++ b/x/test_a.py\n@@ -1 +1 @@\n-a\n+b\n",
    "problem_statement": "p",
    "FAIL_TO_PASS": '["t.py::a"]',
    "PASS_TO_PASS": '["t.py::b"]',
}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Calls the profile; raises ValueError with what it said."""
    plan = load([REPOSITORY / "resources_servers/swebench/configs/swebench.yaml"], []).plan
    try:
        python = environment_python(plan.instances["swebench_resources_server"], plan.settings, lambda line: None)
    except UserError as error:
        pytest.skip(f"the server's own environment cannot be built here: {error}")
    command = [python, str(HERE / "profile_probe.py")]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def call(name: str, **arguments: Any) -> Any:
            stdin.write(json.dumps({"call": name, **arguments}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer["value"]

        yield call
        stdin.close()


@pytest.mark.parametrize("value", [["a", "b's"], '["a", "b\'s"]', "['a', \"b's\"]"])
def test_test_names_in_three_forms(ask: Ask, value: Any) -> None:
    assert ask("test_names", row={"FAIL_TO_PASS": value}) == ["a", "b's"]


@pytest.mark.parametrize("value", [None, 3, "nothing", '{"a": 1}', "[1]", '"a"', "__import__('os')"])
def test_test_names_that_are_none(ask: Ask, value: Any) -> None:
    with pytest.raises(ValueError, match="FAIL_TO_PASS"):
        ask("test_names", row={"FAIL_TO_PASS": value})


def test_which_image_a_row_gets(ask: Ask) -> None:
    published = "swebench/sweb.eval.x86_64.astropy_1776_astropy-1:latest"
    assert ask("task", row=ROW)["image"] == published
    assert ask("task", row=ROW | {"image": None})["image"] == published
    assert ask("task", row=ROW | {"image": "mine:1"})["image"] == "mine:1"
    assert ask("task", row=ROW | {"image": "mine:1"}, image_template="m/{instance_id_s}")["image"] == "m/astropy_s_astropy-1"
    assert ask("task", row=ROW) == {"image": published, "required": ["t.py::a", "t.py::b"], "workdir": "/testbed", "gold": "gold"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"repo": "no/such"}, "no way to read tests of 'no/such'"),
        ({"version": "99"}, "no way to test astropy/astropy 99"),
        ({"log_parser": "parse_log_nothing"}, "no log parser 'parse_log_nothing'"),
        ({"log_parser": "re"}, "no log parser 're'"),
        ({"eval_type": "some"}, "eval_type 'some' is not one of pass_and_fail, fail_only"),
        ({"image": 3}, "image must be the name"),
        ({"patch": None}, "patch must be text, got NoneType"),
        ({"PASS_TO_PASS": None}, "PASS_TO_PASS"),
    ],
)
def test_rows_that_are_refused(ask: Ask, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ask("evaluation", row=ROW | changes)


def test_the_script_is_the_packages_or_the_rows(ask: Ask) -> None:
    script = ask("evaluation", row=ROW, base="abc123")
    assert script.startswith("set -uxo pipefail\n")
    assert "git checkout abc123 x/test_a.py" in script
    assert "pytest -rA" in script
    own = {"repo": "my/own", "version": "1", "eval_script": "echo mine", "log_parser": "parse_log_pytest"}
    assert ask("evaluation", row=ROW | own) == "echo mine"


def test_grading(ask: Ask) -> None:
    both = ask("grade", row=ROW, output="PASSED t.py::a\nPASSED t.py::b\nFAILED t.py::other - x\n")
    assert both == {
        "resolved": True,
        "statuses": {"t.py::a": "PASSED", "t.py::b": "PASSED", "t.py::other": "FAILED"},
        "failed": [],
        "definite": [],
    }
    broken = ask("grade", row=ROW, output="PASSED t.py::a\nFAILED t.py::b - AssertionError\n")
    assert (broken["resolved"], broken["failed"], broken["definite"]) == (False, ["t.py::b"], ["t.py::b"])
    missing = ask("grade", row=ROW, output="PASSED t.py::b\n")
    assert (missing["resolved"], missing["failed"], missing["definite"]) == (False, ["t.py::a"], [])
    assert ask("grade", row=ROW, output="Segmentation fault")["statuses"] == {}
    # Where only failures are printed, a test that is not named passed.
    quiet = ask("grade", row=ROW | {"eval_type": "fail_only"}, output="PASSED t.py::b\n")
    assert quiet["resolved"] is True


def test_published_rows(ask: Ask) -> None:
    path = SHARED / "data/swe_rows/swebench_verified.jsonl"
    if not path.is_file():
        pytest.skip(f"real rows are extra material, looked for in {path} (GYM_SHARED)")
    for row in map(json.loads, path.read_text().splitlines()):
        task = ask("task", row=row)
        assert task["required"]
        lines = "".join(f"PASSED {test}\n" for test in task["required"])
        assert ask("grade", row=row, output=lines)["resolved"] is True
        assert ask("evaluation", row=row)
