"""Files and command line -> one tree: which file is read when, and what overrides what.

Owns the order: bases named in `config_paths` before the file that names them, later siblings over
earlier ones, a file named twice read once, then `env.yaml`, then the command line. Its invariant:
nothing but the named files is read. Directives and `${…}` are left in the tree for later stages.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gym.config.errors import Problem, did_you_mean, shown
from gym.config.overrides import COMMAND_LINE, FieldsOf, Override, apply_overrides, read_override
from gym.config.plan import Origin
from gym.config.roots import ENV_FILE, find_file
from gym.config.tree import Block, Items, Leaf, Node, from_plain, merge
from gym.config.yamlfile import read_yaml

CONFIG_PATHS = "config_paths"


@dataclass
class Composition:
    """The merged tree, the files that it came from in the order in which they were laid, and what was wrong on the way."""

    root: Block
    files: dict[Path, Origin] = field(default_factory=dict[Path, Origin])
    """Each with the place that named it."""
    problems: list[Problem] = field(default_factory=list[Problem])
    complete: bool = True
    """False if some file could not be read."""


def compose(
    configs: Sequence[Path | str],
    overrides: Sequence[str],
    *,
    roots: Sequence[Path],
    cwd: Path,
    known_keys: Collection[str] = (),
    with_env_file: bool = True,
    fields_of: FieldsOf = lambda _: (),
) -> Composition:
    """Composes files and overrides; problems are collected in the result, nothing is raised."""
    reader = _Reader(roots, cwd)
    read: list[Override] = []
    for text in overrides:
        override = read_override(text)
        if isinstance(override, Problem):
            reader.problems.append(override)
        else:
            read.append(override)
    for config in configs:
        reader.include(str(config), COMMAND_LINE)
    for override in read:
        if override.key == CONFIG_PATHS:
            reader.include_all(from_plain(override.value, COMMAND_LINE))
    env_file = cwd / ENV_FILE
    if not with_env_file:
        pass
    elif env_file.is_file():
        reader.include(str(env_file), Origin(ENV_FILE))
    elif env_file.is_symlink():  # said here: otherwise each secret in it would be missed by itself
        message = f"is a link that leads nowhere ({shown(str(env_file.readlink()))})"
        reader.unread = True
        reader.problems.append(Problem("config-not-found", "", message, "mend or remove it", Origin(ENV_FILE)))
    root: Node = Block({}, COMMAND_LINE)
    for layer in reader.layers:
        root = merge(root, layer)
    assert isinstance(root, Block)
    if reader.unread:  # what a file that cannot be read would have set is unknown: all else would be noise
        return Composition(root, reader.files, [*reader.problems], complete=False)
    root, problems = apply_overrides(root, [override for override in read if override.key != CONFIG_PATHS], known_keys, fields_of)
    return Composition(root, reader.files, [*reader.problems, *problems])


def display_path(path: Path, cwd: Path) -> str:
    """A path as messages name it: relative to the working directory where it lies below it."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


class _Reader:
    """The post-order walk over the files that name one another."""

    def __init__(self, roots: Sequence[Path], cwd: Path) -> None:
        self._roots = roots
        self._cwd = cwd
        self._open: list[Path] = []
        self._seen: set[Path] = set()
        self.files: dict[Path, Origin] = {}
        self.layers: list[Block] = []
        self.problems: list[Problem] = []
        self.unread = False

    def include(self, name: str, origin: Origin) -> None:
        """Reads a file and, before it, its bases; a file that was read already counts once."""
        found = find_file(Path(name).expanduser(), self._roots)
        if found is None:
            looked = ", ".join(map(str, self._roots)) if not Path(name).is_absolute() else str(Path(name).parent)
            near = did_you_mean(Path(name).name, self._neighbours(Path(name)), otherwise=f"looked in {looked}")
            self.unread = True
            self.problems.append(Problem("config-not-found", CONFIG_PATHS, f"there is no file {shown(name)}", near, origin))
            return
        identity = found.resolve()
        if identity in self._open:
            chain = [display_path(path, self._cwd) for path in [*self._open[self._open.index(identity) :], identity]]
            message = f"files include each other in a circle ({' -> '.join(chain)})"
            self.problems.append(Problem("config-cycle", CONFIG_PATHS, message, "remove one of these config_paths entries", origin))
            return
        if identity in self._seen:
            return
        block, problems = read_yaml(found, display_path(found, self._cwd))
        self.problems.extend(problems)
        if block is not None:
            self._open.append(identity)
            bases = block.entries.get(CONFIG_PATHS)
            if bases is not None:
                self.include_all(bases)
            self._open.pop()
            entries = {key: node for key, node in block.entries.items() if key != CONFIG_PATHS}
            self.layers.append(replace(block, entries=entries))
        else:
            self.unread = True
        self._seen.add(identity)
        self.files[found] = origin

    def include_all(self, bases: Node) -> None:
        """Reads each file that a `config_paths` value names."""
        if isinstance(bases, Leaf) and bases.value is None:
            return
        if not isinstance(bases, Items):
            written = bases.value if isinstance(bases, Leaf) and isinstance(bases.value, str) else "a.yaml"
            hint = f"write {CONFIG_PATHS}: [{written}]"
            self.unread = True
            self.problems.append(Problem("config-paths", CONFIG_PATHS, "takes a list of files", hint, bases.origin))
            return
        for base in bases.children:
            if isinstance(base, Leaf) and isinstance(base.value, str) and base.value:
                self.include(base.value, base.origin)
            else:
                self.problems.append(
                    Problem("config-paths", CONFIG_PATHS, "an entry is not the path of a file", "write a path", base.origin)
                )

    def _neighbours(self, path: Path) -> list[str]:
        names: set[str] = set()
        for root in self._roots:
            folder = (root / path).parent
            if folder.is_dir():
                names.update(child.name for child in folder.iterdir() if child.suffix in {".yaml", ".yml"})
        return sorted(names)
