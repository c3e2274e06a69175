"""Whether a configuration builds on configs that are deprecated, as their manifests say.

Owns that one warning. Reads the manifests beside the files that were composed, and nothing else of them.
"""

import re
from pathlib import Path

from gym.config import Examined, Problem
from gym.config.compose import CONFIG_PATHS, display_path
from gym.config.overrides import COMMAND_LINE
from gym.config.plan import Origin
from gym.config.tree import Leaf
from gym.config.yamlfile import read_yaml
from gym.manifests.places import overlay_at

_INSTEAD = re.compile(r"^#.*\buse\b.*?(\S+\.yaml)", re.MULTILINE)


def check_lifecycle(examined: Examined, cwd: Path) -> list[Problem]:
    """A warning for each deprecated config, where it is named; not for those that a deprecated one names."""
    deprecated = {display_path(path, cwd): (path, origin) for path, origin in examined.files.items() if _is_deprecated(path)}
    problems: list[Problem] = []
    for shown, (path, origin) in deprecated.items():
        if origin.path in deprecated:
            continue
        instead = _INSTEAD.search(path.read_text(encoding="utf-8"))
        hint = f"use {instead[1]}" if instead is not None else "its first lines say what it is kept for"
        where = Origin(shown, 1, 1) if origin == COMMAND_LINE else origin
        problems.append(Problem("deprecated", CONFIG_PATHS, f"{shown} is deprecated", hint, where, "warning"))
    return problems


def _is_deprecated(path: Path) -> bool:
    overlay = overlay_at(path)
    if overlay is None or not overlay.manifest.is_file():
        return False
    block, _ = read_yaml(overlay.manifest, overlay.manifest.name)
    lifecycle = block.entries.get("lifecycle") if block is not None else None
    return isinstance(lifecycle, Leaf) and lifecycle.value == "deprecated"
