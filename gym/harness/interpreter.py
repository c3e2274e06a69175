"""A Python on this machine, and a copy of it that runs from any folder of another machine.

A Python that uv manages is made for that. Any other is copied with the shared libraries that it and its modules load, glibc's
own left out, and told to look for them beside itself: by its own RPATH, since a variable would reach the programs that it starts.
Left out of a copy: tests, tkinter, IDLE, pip and what is installed there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from gym.config.errors import UserError
from gym.harness.programs import run_program

_SECONDS = 900
_ASK = """
import json, platform, sys, sysconfig
print(json.dumps({"version": platform.python_version(), "short": sysconfig.get_python_version(), "binary": sys.executable,
                  "stdlib": sysconfig.get_path("stdlib"), "name": platform.python_implementation()}))
"""
_UNWANTED = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "turtle.py", "lib2to3", "ensurepip", "pydoc_data", "config-*"),
    *("__pycache__", "site-packages", "dist-packages", "*.a", "_tkinter*", "_test*", "_ctypes_test*", "xxlimited*"),
    # These need libraries of a terminal, or of a whole system.
    *("_curses*", "readline*", "_dbm*", "_gdbm*", "_crypt*", "nis*", "ossaudiodev*"),
)
_GLIBC = re.compile(r"(lib(c|m|pthread|dl|rt|util|resolv|anl|nsl)|ld-linux-x86-64)\.so")
_LINE = re.compile(r"^\s*(?P<name>\S+) => (?P<path>/\S+|not found)", re.MULTILINE)


@dataclass(frozen=True)
class Interpreter:
    """One Python."""

    binary: Path
    stdlib: Path
    version: str
    """E.g. `3.12.1`."""
    relocatable: bool

    @property
    def short(self) -> str:
        """E.g. `3.12`."""
        return ".".join(self.version.split(".")[:2])

    def copy(self, target: Path, patchelf: Callable[[], Path]) -> Path:
        """Copy it to `target`, and return the copy's program; `patchelf` is asked for where it is needed."""
        libraries, binaries = target / "lib", target / "bin"
        shutil.copytree(self.stdlib, libraries / f"python{self.short}", ignore=_UNWANTED, ignore_dangling_symlinks=True)
        binaries.mkdir()
        program = binaries / f"python{self.short}"
        shutil.copy2(self.binary, program)
        (binaries / "python3").symlink_to(program.name)
        modules = list((libraries / f"python{self.short}" / "lib-dynload").glob("*.so"))
        for library in sorted(_libraries([self.binary, *(self.stdlib / "lib-dynload" / module.name for module in modules)])):
            shutil.copy2(library, libraries / library.name)
        if not self.relocatable:
            files = [str(file) for file in (*modules, *libraries.glob("*.so*"))]
            if strip := shutil.which("strip"):  # a Python that was built here has its debugging information in it
                subprocess.run([strip, "--strip-unneeded", *files], capture_output=True, check=False, timeout=_SECONDS)
            failure, tool = "the library paths of the copied Python could not be set", str(patchelf())
            _run([tool, "--remove-rpath", *files], failure)
            _run([tool, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(program)], failure)
        return program


def find_interpreter(version: str, say: Callable[[str], None], *, to_copy: bool = True) -> Interpreter:
    """A Python of `version` (e.g. `3.12`): one that uv manages or may fetch, else any other on this machine. Raises UserError.

    One that is not to be copied may be any; it is fetched only if there is none.
    """
    managed = _managed(version)
    if managed is None and not to_copy and (other := _other(version)):
        return other
    if managed is None and os.environ.get("UV_PYTHON_DOWNLOADS") not in ("never", "manual"):
        say(f"fetching Python {version} with uv (once)")
        run_program([find_uv_bin(), "python", "install", version], _SECONDS)
        managed = _managed(version)
    if managed is not None:
        return managed
    if other := _other(version):
        return other
    raise UserError(
        f"a Python {version} is needed, and there is none on this machine: install it with `uv python install {version}`, "
        f"or by any other means so that python{version} is on PATH"
    )


def _other(version: str) -> Interpreter | None:
    found = (_ask(candidate, version, relocatable=False) for candidate in _candidates(version))
    return next(filter(None, found), None)


def _managed(version: str) -> Interpreter | None:
    command = [find_uv_bin(), "python", "find", "--python-preference", "only-managed", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    return _ask(Path(done.stdout.strip()), version, relocatable=True) if done.returncode == 0 else None


def _candidates(version: str) -> Iterator[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += [Path(sys.base_prefix) / "bin", *sorted(pyenv.glob(f"versions/{version}*/bin"), reverse=True)]
    for folder in folders:
        if (candidate := folder / f"python{version}").exists():
            yield candidate


def _ask(candidate: Path, version: str, *, relocatable: bool) -> Interpreter | None:
    """What the candidate says of itself; None if it does not run here, or is another version (pyenv's shims are such)."""
    try:
        done = subprocess.run([candidate, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
        said: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError):
        return None
    if said["short"] != version or said["name"] != "CPython":
        return None
    return Interpreter(Path(said["binary"]).resolve(), Path(said["stdlib"]), said["version"], relocatable)


def _libraries(files: list[Path]) -> set[Path]:
    """The shared libraries that these files load from this machine, but for glibc's."""
    said = _run(["ldd", *map(str, files)], "the libraries of Python could not be listed")
    found = {match["name"]: match["path"] for match in _LINE.finditer(said) if not _GLIBC.match(match["name"])}
    missing = sorted(name for name, path in found.items() if path == "not found")
    if missing:
        raise UserError(f"{files[0]} cannot be copied for sandboxes: this machine lacks {', '.join(missing)}")
    return {Path(path) for path in found.values()}


def _run(command: list[str], failure: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except OSError as error:
        raise UserError(f"{failure}: {error}") from error
    if done.returncode:
        raise UserError(f"{failure}: {done.stderr.strip()[-500:]}")
    return done.stdout
