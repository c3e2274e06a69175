"""Fields of published rows in their forms, and what is left out of a patch."""

from typing import Any

import pytest

from gym.swe import rows
from gym.swe.capture import cleaned
from gym.swe.config import SweConfig, cpu_environment
from gym.swe.profile import Task
from gym.swe.rows import image_of, text, word


@pytest.mark.parametrize("value", [["a", "b's"], '["a", "b\'s"]', "['a', \"b's\"]"])
def test_names_in_three_forms(value: Any) -> None:
    assert rows.test_names({"F": value}, "F") == ["a", "b's"]


@pytest.mark.parametrize("value", [None, 3, "nothing", '{"a": 1}', "[1]", '"a"', "__import__('os')", "[" * 9999])
def test_what_is_no_list_of_names(value: Any) -> None:
    with pytest.raises(ValueError, match="F "):
        rows.test_names({"F": value}, "F")


def test_texts_and_words() -> None:
    assert text({"a": "x"}, "a") == "x"
    assert text({"a": None}, "a", "") == ""
    for row, reason in (({"a": 3}, "a must be text, got int"), ({}, "a must be text, got NoneType"), ({"a": " "}, "a must not be empty")):
        with pytest.raises(ValueError, match=reason):
            word(row, "a")


def test_which_image() -> None:
    assert image_of({}, "A__b-1", None, "p/{instance_id_1776}:latest") == "p/a_1776_b-1:latest"
    assert image_of({"image": "own:1"}, "A__b-1", None, "p") == "own:1"
    assert image_of({"image": "own:1"}, "A__b-1", "m/{instance_id_s}", "p") == "m/a_s_b-1"
    with pytest.raises(ValueError, match="image_url must be the name of an image, got 3"):
        image_of({"image_url": 3}, "a", None, "p", field="image_url")


def added(*paths: str) -> str:
    return "".join(f"diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n" for path in paths)


def test_what_is_left_out_of_a_patch() -> None:
    task = Task("i", "img", "/testbed", added("lib/conftest.py"), added("tests/test_a.py"), (), {}, hide=("run_tests.sh", "r2e_tests/"))
    paths = [
        "lib/a.py",
        "lib/conftest.py",
        "conftest.py",
        "x/sitecustomize.py",
        "a.pth",
        "tests/test_a.py",
        "run_tests.sh",
        "r2e_tests/b.py",
    ]
    patch = cleaned(added(*paths, "build/x.o", "my_conftest.py").encode(), task, "worktree", {"build/"})
    assert patch.data == added("lib/a.py", "lib/conftest.py", "my_conftest.py").encode()
    assert patch.source == "worktree"
    assert patch.row(False)["patch_files_left_out"] == paths[2:], "what the image had untracked is not worth a word"
    nothing = cleaned(added("tests/test_a.py").encode(), task, "worktree")
    assert (nothing.data, nothing.source) == (b"", "none")


def test_libraries_are_told_how_many_cpus_there_are() -> None:
    assert cpu_environment(None) == {}
    assert set(cpu_environment(2.5).values()) == {"2"}
    assert cpu_environment(0.5)["OMP_NUM_THREADS"] == "1"
    with pytest.raises(ValueError, match="image_template"):
        SweConfig(entrypoint="app.py", image_template="{repo}")
