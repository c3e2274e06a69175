"""Whether a config is still meant to be used: its manifest says so, and whoever uses the config is told.

Reads no more than the manifests beside the configs that were composed; what is wrong with a manifest is not said here.
"""

from collections.abc import Mapping
from pathlib import Path

from gym.config.compose import display_path
from gym.config.errors import Problem
from gym.config.plan import Origin
from gym.config.tree import Leaf
from gym.config.yamlfile import read_yaml
from gym.manifests.places import overlay_anywhere


def check_lifecycle(files: Mapping[Path, Origin], cwd: Path, itself: Path | None = None) -> list[Problem]:
    """A warning for each of the files that is deprecated, where another file names it, or else at its own first line.

    `files` are all that were composed, each with where it was named. What a deprecated file names is left out, and so is
    `itself`: a config that is checked and not used.
    """
    found = {path: display_path(path, cwd) for path in files if _is_deprecated(overlay_anywhere(path, cwd).manifest)}
    problems: list[Problem] = []
    for path, shown in found.items():
        named = files[path]
        if path != itself and named.path not in found.values():
            origin = named if named.line else Origin(shown, 1, 1)
            message = f"{shown} is deprecated, as its manifest says"
            problems.append(Problem("deprecated-config", "", message, "the README beside it says what to use", origin, "warning"))
    return problems


def _is_deprecated(manifest: Path) -> bool:
    if not manifest.is_file():
        return False
    block, _ = read_yaml(manifest, str(manifest))
    lifecycle = None if block is None else block.entries.get("lifecycle")
    return isinstance(lifecycle, Leaf) and lifecycle.value == "deprecated"
