"""A Python for sandboxes: which one it is, what names it, and what its files need of glibc."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gym.config.errors import UserError
from gym.harness.bundle import Bundle, ensure
from gym.harness.elf import Version, needed_glibc
from gym.harness.interpreter import Interpreter, find_interpreter
from gym.harness.python_tree import PythonTree


def test_a_python_that_there_is_none_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    said: list[str] = []
    with pytest.raises(UserError, match=r"a Python 3\.99 is needed.*`uv python install 3\.99`, or .*python3\.99 is on PATH"):
        find_interpreter("3.99", said.append)
    assert said == [], "nothing is fetched where that is forbidden"


def test_one_that_only_pretends_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyenv's shims are found on PATH, and do not run; a link may lead to another version."""
    short = ".".join(platform.python_version_tuple()[:2])
    broken, other, good = (tmp_path / name for name in ("broken", "other", "good"))
    for folder in (broken, other, good):
        folder.mkdir()
    (broken / "python3.98").write_text("#!/bin/sh\nexit 127\n")
    (broken / "python3.98").chmod(0o755)
    (other / "python3.98").symlink_to(sys.executable)
    (good / f"python{short}").symlink_to(sys.executable)
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("PATH", f"{broken}:{other}:{good}")
    with pytest.raises(UserError):
        find_interpreter("3.98", print)
    assert find_interpreter(short, print).version == platform.python_version()


def test_what_names_a_python(tmp_path: Path) -> None:
    requirements, driver = tmp_path / "bundle.txt", tmp_path / "driver.py"
    requirements.write_text("a==1\n")
    driver.write_text("one")
    seen = {
        PythonTree(requirements).identity,
        PythonTree(requirements, (driver,)).identity,
        PythonTree(requirements, version="3.13").identity,
    }
    driver.write_text("two")
    seen.add(PythonTree(requirements, (driver,)).identity)
    requirements.write_text("a==2\n")
    seen.add(PythonTree(requirements).identity)
    assert len(seen) == 5


def test_what_a_program_needs_of_glibc(tmp_path: Path) -> None:
    assert (2, 2) < needed_glibc(Path(sys.executable).resolve()) < (3, 0)
    for name, content in {"text": b"GLIBC_2.99\0", "empty": b"", "broken": b"\x7fELF\x02\x01" + b"\xff" * 100}.items():
        (tmp_path / name).write_bytes(content)
        assert needed_glibc(tmp_path / name) == (0, 0)


@dataclass(frozen=True)
class Files:
    """A part with a program, a file that only its owner may read, and a link."""

    identity: str = "files"

    def make(self, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        (folder / "bin").mkdir(mode=0o700)
        shutil.copyfile(Path(sys.executable).resolve(), folder / "bin" / "python")
        (folder / "bin" / "python").chmod(0o700)
        (folder / "bin" / "python3").symlink_to("python")
        (folder / "secret").write_text("x")
        (folder / "secret").chmod(0o600)


@pytest.mark.parametrize("stated", [(0, 0), (2, 98)])
def test_the_archive_is_for_every_user_and_the_newest_glibc_counts(tmp_path: Path, stated: Version) -> None:
    built = ensure(Bundle("Files", (Files(),), glibc=stated), tmp_path, print)
    with tarfile.open(built.archive) as files:
        found = {entry.name: (entry.mode & 0o777, entry.uid, entry.linkname) for entry in files}
    assert found == {
        ".": (0o755, 0, ""),
        "./bin": (0o755, 0, ""),
        "./bin/python": (0o755, 0, ""),
        "./bin/python3": (0o777, 0, "python"),
        "./secret": (0o644, 0, ""),
    }
    assert built.glibc == max(stated, needed_glibc(Path(sys.executable).resolve()))


def test_one_that_uv_manages_comes_first_and_is_copied_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version, short = platform.python_version(), ".".join(platform.python_version_tuple()[:2])
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PATH", f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}")

    def patchelf() -> Path:
        raise AssertionError("it finds its libraries wherever it is")

    here = Interpreter(Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")), version, relocatable=True)
    here.copy(tmp_path / "uv" / f"cpython-{version}-linux-x86_64-gnu", patchelf)
    found = find_interpreter(short, print)
    assert (found.version, found.relocatable) == (version, True)
    program = found.copy(tmp_path / "copy", patchelf)
    assert program == tmp_path / "copy" / "bin" / f"python{short}"
    done = subprocess.run([program, "-I", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy" / "lib" / f"python{short}").iterdir()}
    assert not names & {"test", "idlelib", "tkinter", "ensurepip", "site-packages"}
