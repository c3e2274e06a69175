"""Finds an implementation's folder and its configuration model.

Owns the import of `config.py`, and nothing else of an implementation is ever imported here. The
module gets its ordinary name (`resources_servers.swebench.config`), so that the app shares the
class.
"""

import importlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from gym.config.errors import Problem, did_you_mean
from gym.config.packages import implementation_package
from gym.config.plan import Origin
from gym.config.roots import find_implementation, implementation_names
from gym.config.schema import BASE_CONFIGS, KINDS, Kind, ServerConfig
from gym.config.tree import KeyPath

CONFIG_MODULE = "config.py"
CONFIG_CLASS = "Config"
_BLOCK_DEPTH = 3  # <instance>.<kind>.<implementation>


@dataclass
class Implementation:
    """A folder and its model; `problems` lack a key path and an origin where they concern the folder as a whole."""

    directory: Path | None
    model: type[ServerConfig]
    problems: list[Problem] = field(default_factory=list[Problem])


def find(kind: Kind, name: str, roots: Sequence[Path], *, key_path: str, origin: Origin, remote: bool) -> Implementation:
    """The implementation of that name. One that runs elsewhere need not exist here: then its keys are not known."""
    directory = find_implementation(kind, name, roots)
    if directory is None:
        if remote:
            return Implementation(None, open_model(kind))
        hint = did_you_mean(name, implementation_names(kind, roots), otherwise=f"make {kind}/{name}/app.py, or name another")
        looked = ", ".join(str(root / kind) for root in roots)
        problem = Problem("unknown-implementation", key_path, f"there is no implementation '{name}' (looked in {looked})", hint, origin)
        return Implementation(None, open_model(kind), [problem])
    path = directory / CONFIG_MODULE
    if not path.is_file():
        return Implementation(directory, open_model(kind))
    try:
        model = _load_model(kind, name, path)
    except (Exception, SystemExit) as error:  # a server author's code: whatever it raises is a finding about that file
        lines = str(error).strip().splitlines() or [""]
        line = error.lineno or 1 if isinstance(error, SyntaxError) else _line_in(error, path)
        message = f"cannot be imported: {type(error).__name__}: {lines[0]}"
        problem = Problem("broken-implementation", key_path, message, f"correct {kind}/{name}/{CONFIG_MODULE}", Origin(str(path), line, 1))
        return Implementation(directory, open_model(kind), [problem])
    if not isinstance(model, type) or not issubclass(model, BASE_CONFIGS[kind]):
        message = f"defines no class {CONFIG_CLASS} that extends {BASE_CONFIGS[kind].__name__}"
        hint = f"add it to {kind}/{name}/{CONFIG_MODULE}"
        return Implementation(
            directory, open_model(kind), [Problem("broken-implementation", key_path, message, hint, Origin(str(path), 1, 1))]
        )
    return Implementation(directory, model)


def implementation_fields(path: KeyPath, roots: Sequence[Path]) -> Collection[str]:
    """The fields of the implementation whose block stands at a key path; empty if that is none."""
    kinds: list[Kind] = [kind for kind in KINDS if path[1:2] == (kind,)]
    if len(path) != _BLOCK_DEPTH or not kinds:
        return ()
    return find(kinds[0], str(path[2]), roots, key_path="", origin=Origin(""), remote=False).model.model_fields


@cache
def open_model(kind: Kind) -> type[ServerConfig]:
    """The base of a kind with unknown keys allowed: for an implementation that has no model of its own."""
    base = BASE_CONFIGS[kind]

    class Open(base):
        model_config = ConfigDict(extra="allow")

    Open.__name__ = Open.__qualname__ = base.__name__
    return Open


def _load_model(kind: Kind, name: str, path: Path) -> Any:
    module = importlib.import_module(f"{implementation_package(kind, name, path.parent)}.{path.stem}")
    return getattr(module, CONFIG_CLASS, None)


def _line_in(error: BaseException, path: Path) -> int:
    """The line of `path` that the error came through, or 1."""
    line, traceback = 1, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
