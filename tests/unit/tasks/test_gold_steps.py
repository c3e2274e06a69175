"""A gold patch as calls of a harness's tools leaves what the patch leaves."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts/evidence"))
try:
    gold_steps: Any = importlib.import_module("gold_steps")
    harnesses: Any = importlib.import_module("harnesses")
finally:
    sys.path.pop(0)

OLD = "".join(f"line {number}\n" for number in range(30))
NEW = OLD.replace("line 3\n", "line three\n").replace("line 25\n", "").replace("line 29\n", "line 29\nlast")


def play(steps: list[dict[str, Any]], folder: Path) -> None:
    """Do what the tools do."""
    for call in (call for step in steps for call in step.get("calls", [])):
        given = call["arguments"]
        path = folder / (given.get("filePath") or given.get("path", ""))
        if call["name"] in ("edit", "patch"):
            old, new = (
                given.get(name) or given.get(other, "") for name, other in (("oldString", "old_string"), ("newString", "new_string"))
            )
            assert path.read_text().count(old) == 1
            path.write_text(path.read_text().replace(old, new))
        elif call["name"] in ("write", "write_file"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(given["content"])
        elif call["name"] in ("bash", "terminal"):
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


@pytest.mark.parametrize("harness", harnesses.HARNESSES, ids=lambda harness: harness.title)
def test_edits_new_files_and_removals(tree: Path, harness: Any) -> None:
    (tree / "a.txt").write_text(NEW)
    (tree / "deep/new").mkdir(parents=True)
    (tree / "deep/new/b.txt").write_text("one\n\n-- two\n++ three\n")
    (tree / "gone.txt").unlink()
    git(tree, "add", "-A")
    patch = git(tree, "diff", "--cached")
    git(tree, "reset", "-q", "--hard")
    steps = gold_steps.steps_of(patch, harness)
    assert [call["name"] for call in steps[0]["calls"]] == [harness.read("x")["name"]]
    play(steps, tree)
    git(tree, "add", "-A")
    assert git(tree, "diff", "--cached") == patch
