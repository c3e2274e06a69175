"""A gold patch as calls of OpenCode's tools leaves what the patch leaves."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPOSITORY

_SPEC = importlib.util.spec_from_file_location("gold_steps", REPOSITORY / "scripts/evidence/gold_steps.py")
assert _SPEC is not None
assert _SPEC.loader is not None
gold_steps: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gold_steps)

OLD = "".join(f"line {number}\n" for number in range(30))
NEW = OLD.replace("line 3\n", "line three\n").replace("line 25\n", "").replace("line 29\n", "line 29\nlast")


def play(steps: list[dict[str, Any]], folder: Path) -> None:
    """Do what OpenCode's tools do."""
    for call in (call for step in steps for call in step.get("calls", [])):
        given = call["arguments"]
        path = folder / given.get("filePath", "")
        if call["name"] == "edit":
            assert path.read_text().count(given["oldString"]) == 1
            path.write_text(path.read_text().replace(given["oldString"], given["newString"]))
        elif call["name"] == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(given["content"])
        elif call["name"] == "bash":
            subprocess.run(given["command"], shell=True, cwd=folder, check=True, capture_output=True)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, text=True, capture_output=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text(OLD)
    (tmp_path / "gone.txt").write_text("gone\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")
    return tmp_path


def test_edits_new_files_and_removals(tree: Path) -> None:
    (tree / "a.txt").write_text(NEW)
    (tree / "deep/new").mkdir(parents=True)
    (tree / "deep/new/b.txt").write_text("one\n\n-- two\n++ three\n")
    (tree / "gone.txt").unlink()
    git(tree, "add", "-A")
    patch = git(tree, "diff", "--cached")
    git(tree, "reset", "-q", "--hard")
    steps = gold_steps.steps_of(patch)
    assert [call["name"] for call in steps[0]["calls"]] == ["read"]
    play(steps, tree)
    git(tree, "add", "-A")
    assert git(tree, "diff", "--cached") == patch
