"""The SWE-bench profile, asked in the server's own environment, where the `swebench` package is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gym.swe.profile import END, START
from tests.shared_rows import shared_rows

REPOSITORY = Path(__file__).resolve().parents[3]
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


def test_every_language_of_multilingual_has_a_script_without_the_network(ask: Ask) -> None:
    """For each repository and version that the package knows: both markers once, in order, with the test patch before them."""
    known = ask("known")
    languages = {language for language, _, _ in known}
    assert languages == {"c", "go", "java", "js", "php", "py", "rb", "rs"}
    for language, repo, version in known:
        script = ask("evaluation", row=ROW | {"repo": repo, "version": version}, base="abc123")
        assert script.count(START) == script.count(END) == 1, (repo, version)
        assert script.index("git apply") < script.index(START) < script.index(END), (repo, version)
        assert ("conda activate" in script) is (language == "py"), (repo, version)


@pytest.mark.parametrize(
    ("repo", "version", "there", "not_there"),
    [
        ("google/gson", "2158", "\nmvn test -B -T 1C -pl gson -Dtest=com.google.gson.functional.PrimitiveTest#testInt", "mvnd"),
        ("apache/druid", "13704", "\nmvn test -Dmaven.gitcommitid.skip=true -Dgit.commit.id.skip=true -B", "mvnd"),
        ("axios/axios", "4738", "\ntimeout 120s npx mocha", "timeout 10s"),
        ("rubocop/rubocop", "13705", "2>/tmp/gym-stderr; cat /tmp/gym-stderr\n", "mvn"),
        ("redis/redis", "13115", "\nmake distclean\nmake\n: '>>>>> Start Test Output'\nTERM=dumb ./runtest", "gym-stderr"),
    ],
)
def test_scripts_that_need_a_change(ask: Ask, repo: str, version: str, there: str, not_there: str) -> None:
    script = ask("evaluation", row=ROW | {"repo": repo, "version": version})
    assert there in script
    assert not_there not in script


@pytest.mark.parametrize(
    ("repo", "instance"), [("immutable-js/immutable-js", "immutable-js__immutable-js-2006"), ("jekyll/jekyll", "jekyll__jekyll-9141")]
)
def test_parsers_that_go_by_the_id(ask: Ask, repo: str, instance: str) -> None:
    output = "  ✓ t.py::a (3 ms)\n  ✓ t.py::b\n" if "immutable" in repo else "t.py::a. = 0.01 s = .\nt.py::b. = 0.01 s = .\n"
    assert ask("grade", row=ROW | {"repo": repo, "instance_id": instance}, output=output)["resolved"] is True


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
    for row in shared_rows("swebench_verified.jsonl"):
        task = ask("task", row=row)
        assert task["required"]
        lines = "".join(f"PASSED {test}\n" for test in task["required"])
        assert ask("grade", row=row, output=lines)["resolved"] is True
        assert ask("evaluation", row=row)
