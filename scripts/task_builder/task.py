"""One example task, read from its folder.

`repo/` is the project at its base commit, `gold.patch` the solution, `test.patch` the tests that judge it, and `task.json` the rest.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

TASKS = Path(__file__).resolve().parents[1] / "task_images"
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
_PATHS = re.compile(r"^diff --git a/(\S+) b/\1$", re.MULTILINE)


@dataclass(frozen=True)
class Task:
    """A task, by the name of its folder."""

    name: str

    @property
    def folder(self) -> Path:
        """Where it stands."""
        return TASKS / self.name

    @cached_property
    def known(self) -> dict[str, Any]:
        """What `task.json` says."""
        return json.loads((self.folder / "task.json").read_text())

    @property
    def repo(self) -> str:
        """The name that the project would have at a forge."""
        return f"gym-test/{self.name}"

    @property
    def instance_id(self) -> str:
        """The id, in the form of SWE-bench."""
        return f"gym-test__{self.name}-1"

    @property
    def base_image(self) -> str:
        """Which image has the tools that the project needs: python, node or c."""
        return self.known.get("image", "python")

    @cached_property
    def files(self) -> dict[str, tuple[bytes, bool]]:
        """The project's files at the base commit: path -> (content, whether it is executable)."""
        root = self.folder / "repo"
        paths = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(root)): (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for path in paths}

    def patch(self, which: str) -> str:
        """The text of `gold.patch` or `test.patch`, with the line ends that it has."""
        return (self.folder / f"{which}.patch").read_bytes().decode()

    @cached_property
    def test_files(self) -> list[str]:
        """The files that the test patch touches."""
        return _PATHS.findall(self.patch("test"))

    @property
    def test_command(self) -> str:
        """What runs the tests."""
        return self.known.get("test_command") or f"python -m pytest -rA -p no:cacheprovider {' '.join(self.test_files)}"

    def prompt(self, workdir: str) -> dict[str, Any]:
        """The row's `responses_create_params`: the issue and where the project is, and nothing of how it is judged."""
        text = (
            f"The repository in {workdir} has this issue:\n\n{self.known['problem_statement']}\n\n"
            "Change the code so that the issue is resolved. Leave the tests as they are: other tests will judge the change."
        )
        return {"input": [{"role": "user", "content": text}]}


@lru_cache
def load(name: str) -> Task:
    """The task of this name; always the same object, so that its files are read once."""
    return Task(name)
