"""Python environments of servers that need more than ours: built once, shared, known by content.

An environment is named by a digest of its requirements, our own version and dependencies, and the
interpreter: ours, unless the implementation's `python.txt` names another version. Servers that want
the same share one.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gym import __version__
from gym.config.errors import UserError
from gym.config.plan import Instance
from gym.config.schema import Settings
from gym.harness.kept import is_kept, keep
from gym.harness.packages import install, make_environment
from gym.runtime.known_python import known_python


@dataclass(frozen=True)
class Environment:
    """One environment, there or not."""

    folder: Path
    base: Path
    """The interpreter that it is made of."""
    requirements: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def is_there(self) -> bool:
        """Whether there is nothing to build."""
        return is_kept(self.folder, self.python.exists)

    def ensure(self, names: str, say: Callable[[str], None]) -> str:
        """Its interpreter, for the instances `names`; it is built if it is not there. Raises UserError."""
        what = f"the Python environment of {names}"

        def make() -> str:
            say(f"building {what} from {self.requirements} (once, and it may take some minutes)")
            make_environment(self.folder, self.base, what)
            wanted = ["-r", str(self.requirements), *own_dependencies()]
            install(self.python, ["--compile-bytecode", *wanted], f"{what} ({self.requirements})")
            return ""

        keep(self.folder, what, make, say, self.python.exists)
        return str(self.python)


def cache_root(settings: Settings) -> Path:
    """Where built environments are kept: `cache_dir`, else $GYM_CACHE_DIR, else the user's XDG cache folder."""
    if settings.cache_dir is not None:
        return settings.cache_dir
    own = os.environ.get("GYM_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym"


def environment_of(instance: Instance, settings: Settings, say: Callable[[str], None]) -> Environment | None:
    """What `instance` runs in; None if that is our own Python. Raises UserError if there is no interpreter for it."""
    if instance.requirements is None:
        return None
    root = cache_root(settings).absolute() / "environments"
    base, version = _base(instance, root, say)
    lines = [line.strip() for line in instance.requirements.read_text().splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    named = "\n".join([__version__, version, str(base), *own_dependencies(), *wanted])
    return Environment(root / hashlib.sha256(named.encode()).hexdigest()[:16], base, instance.requirements)


def environment_python(instance: Instance, settings: Settings, say: Callable[[str], None]) -> str:
    """The interpreter that runs `instance`; its environment is built if it is not there. Raises UserError."""
    environment = environment_of(instance, settings, say)
    return sys.executable if environment is None else environment.ensure(instance.name, say)


def _base(instance: Instance, root: Path, say: Callable[[str], None]) -> tuple[Path, str]:
    """The interpreter to build on, and its version."""
    wanted = instance.python
    if wanted is None or wanted == sysconfig.get_python_version():
        return Path(sys.executable).resolve(), sys.version
    try:
        return known_python(wanted, root, say)
    except UserError as error:
        raise UserError(f"{instance.name} ({instance.implementation}): {error}") from error


def own_dependencies() -> list[str]:
    """What our own package needs, pinned to what is installed here, so that both sides of a call run the same."""
    try:
        declared = importlib.metadata.requires("gym-agents") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError("gym-agents is not installed in this Python, so its dependencies cannot be read: install it first") from error
    pins: list[str] = []
    for name in sorted({re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in declared if "extra ==" not in line}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            pins.append(f"{name}=={importlib.metadata.version(name)}")
    return pins
