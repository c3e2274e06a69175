"""Where configurations and implementations are looked for.

Owns the order of the roots: the working directory, then each entry of `GYM_EXTRA_ROOTS` (separated
as PATH is), then the folder that holds the installed `gym` package. The first hit wins. It reads
folder listings only and imports nothing of what it finds.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

EXTRA_ROOTS = "GYM_EXTRA_ROOTS"
ENV_FILE = "env.yaml"
"""Secrets and local settings of a working directory; never committed."""
INSTALL_ROOT = Path(__file__).resolve().parents[2]


def search_roots(cwd: Path | None = None, env: Mapping[str, str] | None = None) -> list[Path]:
    """The roots in the order in which they are searched, absolute and without repetition."""
    environment = os.environ if env is None else env
    base = (cwd or Path.cwd()).absolute()
    extra = [base / entry for entry in environment.get(EXTRA_ROOTS, "").split(os.pathsep) if entry]
    return list(dict.fromkeys([base, *extra, INSTALL_ROOT]))


def find_implementation(kind: str, name: str, roots: Sequence[Path] | None = None) -> Path | None:
    """The folder of an implementation, e.g. `…/resources_servers/swebench`, or None if no root has it.

    A folder without a program (rows that were prepared below a working directory) hides none of a later root.
    """
    places = search_roots() if roots is None else roots
    folders = [folder for root in places if (folder := root / kind / name).is_dir()]
    return next((folder for folder in folders if any(folder.glob("*.py"))), folders[0] if folders else None)


def implementation_names(kind: str, roots: Sequence[Path]) -> list[str]:
    """Every implementation of a kind that has an app.py, by folder name, sorted."""
    found: set[str] = set()
    for root in roots:
        folder = root / kind
        if folder.is_dir():
            found.update(child.name for child in folder.iterdir() if (child / "app.py").is_file())
    return sorted(found)


def find_file(path: Path, roots: Sequence[Path]) -> Path | None:
    """The first root's file of that path, absolute; an absolute path is taken as it stands. None if there is no such file."""
    for root in roots:
        candidate = root / path
        if candidate.is_file():
            return candidate
    return None


def type_config(kind: str, option: str, name: str, roots: Sequence[Path]) -> Path:
    """The path, relative to a root, of the file that `--model-type NAME` or `NAME/FLAVOUR` adds, or `--agent-type`.

    Raises `UserError` if no root has it.
    """
    from gym.config.errors import UserError, did_you_mean

    implementation, _, flavour = name.partition("/")
    path = Path(kind) / implementation / "configs" / f"{flavour or implementation}.yaml"
    if find_file(path, roots) is None:
        hint = did_you_mean(implementation, implementation_names(kind, roots))
        raise UserError(f"{option} {name}: there is no {path} in {', '.join(map(str, roots))}" + (f" — {hint}" if hint else ""))
    return path
