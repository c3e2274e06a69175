"""Deprecated configs in use: those whose manifest says so.

Owns no more than that: a manifest that is wrong otherwise is the business of `check`. One look at the disk for each file that was composed.
"""

from collections.abc import Mapping
from pathlib import Path

from gym.config.compose import display_path
from gym.config.errors import Problem
from gym.config.plan import Origin
from gym.config.tree import Leaf
from gym.config.yamlfile import read_yaml
from gym.manifests.places import MANIFEST


def deprecated(files: Mapping[Path, Origin], cwd: Path, itself: Path | None = None) -> list[Problem]:
    """A warning for each of the files that is deprecated, where another file names it, or else at its own first line.

    What a deprecated file names is left out, and so is `itself`: the config that is checked and not used.
    """
    found = {path: display_path(path, cwd) for path in files if _is_deprecated(path.with_suffix("") / MANIFEST)}
    problems: list[Problem] = []
    for path, shown in found.items():
        named = files[path]
        if path != itself and named.path not in found.values():
            hint = f"use another config; {display_path(path.with_suffix('') / MANIFEST, cwd)} says what it is"
            origin = named if named.line else Origin(shown, 1, 1)
            problems.append(Problem("deprecated-config", "", f"{shown} is deprecated", hint, origin, "warning"))
    return problems


def _is_deprecated(manifest: Path) -> bool:
    if not manifest.is_file():
        return False
    block, _ = read_yaml(manifest, str(manifest))
    said = None if block is None else block.entries.get("lifecycle")
    return isinstance(said, Leaf) and said.value == "deprecated"
