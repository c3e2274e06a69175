"""Whether a config is still meant to be used: its manifest says so, and whoever names the config is told.

Reads no more than the manifests beside the named configs; what is wrong with a manifest is not said here.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gym.config.compose import display_path
from gym.config.errors import Problem
from gym.config.plan import Origin
from gym.config.roots import find_file
from gym.config.tree import Leaf
from gym.config.yamlfile import read_yaml
from gym.manifests.places import overlay_at


def check_lifecycle(configs: Iterable[str], roots: Sequence[Path], cwd: Path) -> list[Problem]:
    """A warning for each of the named configs whose manifest calls it deprecated."""
    problems: list[Problem] = []
    for config in configs:
        path = find_file(Path(config).expanduser(), roots)
        overlay = overlay_at(path) if path is not None else None
        if overlay is None or not overlay.manifest.is_file():
            continue
        shown = display_path(overlay.path, cwd)
        block, _ = read_yaml(overlay.manifest, shown)
        lifecycle = block.entries.get("lifecycle") if block is not None else None
        if isinstance(lifecycle, Leaf) and lifecycle.value == "deprecated":
            message = "this config is deprecated, as its manifest says"
            problems.append(Problem("deprecated", "", message, "the README beside it says what to use", Origin(shown, 1, 1), "warning"))
    return problems
