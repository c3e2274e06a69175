"""A task's git repository, made on this machine, with everything in its history that an agent must not see.

Later commits, branches, tags, remote branches, a note and reflogs hold the fix. Dates and names are fixed, so that
commits are the same everywhere: rows name them.
"""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from task_builder.task import Task, load

_PYTHON_IGNORES = b"__pycache__/\n.pytest_cache/\n"
_FIRST = ("README.md", "pyproject.toml", "package.json", "Makefile", ".gitignore")


@dataclass(frozen=True)
class Commits:
    """The base commit, the one with the gold patch, and the one with the tests too."""

    base: str
    fix: str
    tests: str


def make(task: Task, folder: Path) -> Commits:
    """Make the repository in `folder`, which must be empty; the base commit is checked out on `main`."""
    history = task.known["history"]
    for path, (content, executable) in task.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if executable else 0o644)
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_bytes(_PYTHON_IGNORES)
    author = {"NAME": task.name, "EMAIL": f"{task.name}@example.com"}
    who = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in author.items()}
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C", "HOME": str(folder)}
    environ = {"PATH": os.environ["PATH"], **quiet, **who}

    def git(*args: str, day: int = 1, stdin: str | None = None) -> str:
        dates = {f"GIT_{role}_DATE": f"2024-01-0{day}T00:00:00Z" for role in ("AUTHOR", "COMMITTER")}
        done = subprocess.run(
            ["git", *args], cwd=folder, env=environ | dates, input=stdin and stdin.encode(), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{task.name}: git {args[0]} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode().strip()

    def commit(message: str, day: int) -> str:
        git("commit", "-q", "-m", message, day=day)
        return git("rev-parse", "HEAD")

    git("init", "-q", "-b", "main")
    git("add", *(name for name in _FIRST if (folder / name).exists()))
    commit("Start the project", 1)
    git("add", "-A")
    base = commit(history["project"], 2)
    git("tag", "v1.0")
    git("checkout", "-q", "-b", history["branch"])
    git("apply", "--index", "-", stdin=task.patch("gold"))
    fix = commit(history["fix"], 3)
    git("apply", "--index", "-", stdin=task.patch("test"))
    tests = commit(history["tests"], 4)
    git("tag", "v1.1")
    git("tag", "-a", "-m", "release 1.1", "release-1.1", day=4)
    git("update-ref", "refs/remotes/origin/main", tests)
    git("update-ref", "refs/remotes/origin/fix", fix)
    git("remote", "add", "origin", f"https://git.example.com/{task.repo}.git")
    git("notes", "add", "-m", "fixed by applying gold.patch", base, day=4)
    git("checkout", "-q", "main")
    (folder / "build-stamp.txt").write_text("built\n")
    return Commits(base, fix, tests)


@lru_cache
def commits_of(name: str) -> Commits:
    """The commits of a task's repository."""
    with tempfile.TemporaryDirectory() as folder:
        return make(load(name), Path(folder))


@lru_cache
def tested_file(name: str, path: str) -> str:
    """A file as it is with the test patch."""
    with tempfile.TemporaryDirectory() as folder:
        commits = make(load(name), Path(folder))
        show = ["git", "-C", folder, "show", f"{commits.tests}:{path}"]
        return subprocess.run(show, capture_output=True, check=True).stdout.decode()
