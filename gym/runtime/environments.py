"""Python environments of servers that need more than ours: built once, shared, known by content.

An environment is named by a digest of its requirements, our own version and dependencies, and the
interpreter: ours, unless the implementation's `python.txt` names another version. A
lock per environment lets several starts wait for one build; a stamp is written
last, so that a build that was cut short is made anew.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Generator
from pathlib import Path

from gym.config.errors import UserError
from gym.config.plan import Instance
from gym.config.schema import Settings
from gym.harness.interpreter import find_interpreter

_STAMP = ".gym-complete"


def cache_root(settings: Settings) -> Path:
    """Where built environments are kept: `cache_dir`, else $GYM_CACHE_DIR, else the user's XDG cache folder."""
    if settings.cache_dir is not None:
        return settings.cache_dir
    own = os.environ.get("GYM_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym"


def environment_python(instance: Instance, settings: Settings, say: Callable[[str], None]) -> str:
    """The interpreter that runs `instance`; its environment is built if it is not there. Raises UserError."""
    requirements = instance.requirements
    if requirements is None:
        return sys.executable
    return _ensure(instance.name, requirements, _base(instance, say), cache_root(settings) / "environments", say)


def _base(instance: Instance, say: Callable[[str], None]) -> tuple[str, str]:
    """The interpreter to build on, and what names it."""
    wanted = instance.python
    if wanted is None or wanted == sysconfig.get_python_version():
        return sys.executable, sys.version
    try:
        found = find_interpreter(wanted, say, to_copy=False)
    except UserError as error:
        raise UserError(f"{instance.name} ({instance.implementation}): {error}") from error
    return str(found.binary), found.version


def _ensure(name: str, requirements: Path, base: tuple[str, str], root: Path, say: Callable[[str], None]) -> str:
    wanted = _own_dependencies() + requirements.read_text().splitlines()
    lines = [line.strip() for line in wanted if line.strip() and not line.strip().startswith("#")]
    key = hashlib.sha256("\n".join([base[1], base[0], *lines]).encode()).hexdigest()[:16]
    folder = root / key
    python = folder / "bin" / "python"
    stamp = folder / _STAMP
    if stamp.exists():
        return str(python)
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock"):
        if not stamp.exists():
            say(f"building the Python environment of {name} ({len(lines)} requirements; once, and it may take some minutes)")
            shutil.rmtree(folder, ignore_errors=True)
            _uv("venv", "--quiet", "--python", base[0], str(folder), what=name)
            _uv("pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *lines, what=name)
            stamp.touch()
    return str(python)


def _own_dependencies() -> list[str]:
    """What our own package needs, pinned to what is installed here, so that both sides of a call run the same."""
    try:
        declared = importlib.metadata.requires("gym-agents") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError("gym-agents is not installed in this Python, so its dependencies cannot be read: install it first") from error
    names = {_name(line) for line in declared if "extra ==" not in line}
    pins: list[str] = []
    for name in sorted(names):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            pins.append(f"{name}=={importlib.metadata.version(name)}")
    return pins


def _name(requirement: str) -> str:
    for index, char in enumerate(requirement):
        if not (char.isalnum() or char in "-_."):
            return requirement[:index].lower()
    return requirement.lower()


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _uv(*args: str, what: str) -> None:
    from uv import find_uv_bin

    done = subprocess.run([find_uv_bin(), *args], capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n    ".join(done.stderr.strip().splitlines()[-8:])
        raise UserError(f"cannot build the Python environment of {what} (uv {args[0]} failed):\n    {last}")
