"""Where configs and their manifests stand, and what they are called.

Invariant: an overlay `<folder>/<stem>.yaml` has its manifest at `<folder>/<stem>/manifest.yaml`, and
its name says both; one that is the only one of its folder may be `<folder>/config.yaml`, with the
manifest beside it. Only files below the folders of a root that are named here are looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym.config.compose import CONFIG_PATHS
from gym.config.schema import KINDS
from gym.config.tree import Block
from gym.config.yamlfile import read_yaml

MANIFEST = "manifest.yaml"
ONLY_CONFIG = "config.yaml"
RECIPES = ("benchmarks", "nemotron_recipes")
_UNNAMED = {"benchmarks", *KINDS}
"""Folders at the top that are no part of a name."""


@dataclass(frozen=True)
class Overlay:
    """A config below a root."""

    root: Path
    relative: Path

    @property
    def path(self) -> Path:
        """The config's file."""
        return self.root / self.relative

    @property
    def manifest(self) -> Path:
        """Where its manifest stands, if it has one."""
        return self.root / self._home / MANIFEST

    @property
    def config_path(self) -> str:
        """The config, as its manifest names it."""
        return self.path.name if self.path.name == ONLY_CONFIG else f"../{self.path.name}"

    @property
    def _home(self) -> Path:
        return self.relative.parent if self.path.name == ONLY_CONFIG else self.relative.with_suffix("")

    @property
    def name(self) -> str:
        """What it is listed as, e.g. `swebench/verified/opencode`."""
        parts = self._home.parts
        parts = parts[1:] if parts[0] in _UNNAMED else parts
        return "/".join(part for part in parts if part != "configs")

    @property
    def is_recipe(self) -> bool:
        """Whether it stands for a whole evaluation, and not for a server of its kind."""
        return self.relative.parts[0] in RECIPES


def overlay_at(path: Path) -> Overlay | None:
    """The config at a path, which need not exist; None if it stands below none of the folders that hold configs."""
    path = path.absolute()
    for depth in range(len(path.parts) - 2, 0, -1):
        if path.parts[depth] in (*RECIPES, *KINDS):
            root = Path(*path.parts[:depth])
            return Overlay(root, path.relative_to(root))
    return None


def overlay_anywhere(path: Path, cwd: Path) -> Overlay:
    """The config at a path, which is one of the user's own if it stands below none of the folders that hold configs."""
    path = path.absolute()
    root = cwd if path.is_relative_to(cwd) else path.parent
    return overlay_at(path) or Overlay(root, path.relative_to(root))


def overlay_of_manifest(path: Path) -> Overlay | None:
    """The config that a manifest at this path must be about; None if manifests do not stand there."""
    folder = path.absolute().parent
    beside = folder / ONLY_CONFIG
    return overlay_at(beside if beside.is_file() else folder.with_name(f"{folder.name}.yaml")) if path.name == MANIFEST else None


def overlays(roots: Sequence[Path]) -> list[Overlay]:
    """Every config that can have a manifest, by name. Of two with one path, the one of the earlier root."""
    found: dict[Path, Overlay] = {}
    for root in roots:
        for path in _configs(root):
            found.setdefault(path.relative_to(root), Overlay(root, path.relative_to(root)))
    return sorted(found.values(), key=lambda overlay: overlay.name)


def _configs(root: Path) -> Iterator[Path]:
    for kind in KINDS:
        yield from (root / kind).glob("*/configs/*.yaml")
    for folder in RECIPES:
        for path in (root / folder).rglob("*.yaml"):
            if path.name != MANIFEST and is_config(path):
                yield path


def is_config(path: Path) -> bool:
    """Whether it composes instances, or would if it were not broken: prompts, settings of engines and foreign YAML stand here too."""
    block, _ = read_yaml(path, path.name)
    if block is None:
        return _would_compose(path)
    if CONFIG_PATHS in block.entries:
        return True
    return any(isinstance(node, Block) and any(kind in node.entries for kind in KINDS) for node in block.entries.values())


def _would_compose(path: Path) -> bool:
    overlay = overlay_at(path)
    if overlay is not None and overlay.manifest.is_file():
        return True
    try:
        text = path.read_bytes()
    except OSError:
        return True  # to be reported
    return any(f"{key}:".encode() in text for key in (CONFIG_PATHS, *KINDS))
