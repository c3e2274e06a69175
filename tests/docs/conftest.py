"""What tests of pages share: the code blocks of a page, and a shell that runs its commands as a reader would."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; `title` is the file that it is to be written to."""

    language: str
    title: str | None
    text: str


class Reader:
    """Somebody who follows a page in a fresh folder outside the repository."""

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        self.blocks = [Block(**found.groupdict()) for found in _FENCE.finditer((REPOSITORY / page).read_text())]

    @property
    def files(self) -> dict[str, str]:
        """The files that the page says to write, by path."""
        return {block.title: block.text for block in self.blocks if block.title is not None}

    @property
    def commands(self) -> list[str]:
        """The shell blocks, in order."""
        return [block.text for block in self.blocks if block.language == "bash"]

    def write_files(self, below: Path | None = None) -> None:
        """Write every file of the page."""
        for name, text in self.files.items():
            path = (below or self.folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def env(self) -> dict[str, str]:
        """The environment of the reader's shell."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GYM_", "NEMO_GYM_", "PYTHON"))}
        return {**kept, "PATH": path, "GYM_STATE_DIR": str(self.folder / "state")}

    def run(self, command: str, seconds: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a shell block in the folder, with `gym` on PATH and a state folder of its own."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**self.env(), **env},
            text=True,
            capture_output=True,
            check=False,
            timeout=seconds,
        )

    def follow(self) -> str:
        """Run all shell blocks; returns everything that was printed. A command that fails fails the test."""
        said = ""
        for command in self.commands:
            done = self.run(command)
            said += done.stdout + done.stderr
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds nothing."""
    fresh = tmp_path / "elsewhere"
    fresh.mkdir()
    return fresh


@pytest.fixture
def reader(folder: Path) -> Callable[[str], Reader]:
    """Somebody who reads a page, named by its path in the repository."""
    return lambda page: Reader(page, folder)
