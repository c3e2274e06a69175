"""Reads one YAML file into nodes with their lines and columns.

Owns the YAML dialect: YAML 1.1 as OmegaConf reads it (`1e3` is a number, dates stay text), except
that keys are always text as written and `22:04` is not a base-60 number. Its invariant: a problem
in the file is a `Problem` with a position, never an exception of the YAML library.
"""

import re
from pathlib import Path
from typing import Any, cast

import yaml

from gym.config.errors import Problem, shown
from gym.config.plan import Origin
from gym.config.tree import DELETE_KEY, Block, Deletion, Items, Leaf, Node, Scalar

_TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_INT = re.compile(r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$")
_MERGE = f"{_TAG}merge"
_MOST_VALUES = 50_000  # of one file with its aliases written out: far beyond any config, and still composed in seconds


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    inherited = cast("dict[str, list[tuple[str, re.Pattern[str]]]]", yaml.SafeLoader.yaml_implicit_resolvers)
    own = {f"{_TAG}timestamp", f"{_TAG}int", f"{_TAG}float"}
    table = {first: [(tag, regexp) for tag, regexp in rules if tag not in own] for first, rules in inherited.items()}
    for first in "-+.0123456789":
        table.setdefault(first, []).extend([(f"{_TAG}float", _FLOAT), (f"{_TAG}int", _INT)])
    return table


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, and not built in everywhere


class _Loader(_Base):
    """The library's loader with the dialect's own numbers."""

    yaml_implicit_resolvers = _resolvers()


class _Reader:
    """Turns the YAML library's nodes into ours; one per file."""

    def __init__(self, loader: Any, shown_path: str, problems: list[Problem]) -> None:
        self._loader = loader
        self._path = shown_path
        self._problems = problems
        self._open: set[int] = set()
        self._done: dict[int, tuple[Node, int]] = {}
        self._size = 0

    def origin(self, mark: Any) -> Origin:
        return Origin(self._path, mark.line + 1, mark.column + 1)

    def read(self, node: Any, origin: Origin, key_path: str) -> Node:
        self._size += 1
        if isinstance(node, yaml.ScalarNode):
            return Leaf(self._scalar(node, key_path), origin)
        identity = id(node)
        if identity in self._done:  # an alias: the same block again
            block, size = self._done[identity]
            self._size += size
            if self._size <= _MOST_VALUES:
                return block
            message = f"the aliases of this file come to more than {_MOST_VALUES:,} values"
            self._report("yaml-syntax", node, "", message, "write fewer aliases of aliases")
            return Leaf(None, origin)
        if identity in self._open:
            self._report("yaml-syntax", node, key_path, "an alias that contains itself", "write the block out")
            return Leaf(None, origin)
        self._open.add(identity)
        before = self._size
        made = self._items(node, origin, key_path) if isinstance(node, yaml.SequenceNode) else self._block(node, origin, key_path)
        self._open.discard(identity)
        self._done[identity] = made, self._size - before
        return made

    def _scalar(self, node: Any, key_path: str) -> Scalar:
        try:
            value: object = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            detail = getattr(error, "problem", None) or str(error)
            self._report("yaml-syntax", node, key_path, f"{detail} ({shown(node.value)})", "use a plain scalar, a list or a mapping")
            return None
        if value is None or isinstance(value, str | int | float | bool):
            return value
        self._report(
            "yaml-syntax", node, key_path, f"a value of YAML type {node.tag} ({shown(node.value)})", "use text, a number or a boolean"
        )
        return None

    def _items(self, node: Any, origin: Origin, key_path: str) -> Items:
        children = [self.read(child, self.origin(child.start_mark), f"{key_path}[{index}]") for index, child in enumerate(node.value)]
        return Items(tuple(children), origin)

    def _block(self, node: Any, origin: Origin, key_path: str) -> Block:
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        deletions: dict[str, Deletion] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    block = self.read(source, self.origin(source.start_mark), key_path)
                    if isinstance(block, Block):
                        merged = {**block.entries, **merged}
                    else:
                        self._report("yaml-syntax", source, key_path, "'<<' takes a mapping, or a list of mappings", "")
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._report("yaml-syntax", key_node, key_path, "a key that is a list or a mapping", "keys are text")
                continue
            key = str(cast(object, key_node.value))
            path = f"{key_path}.{key}" if key_path else key
            if key in entries:
                first = entries[key].origin
                message = f"this key is written twice in one mapping (first on line {first.line})"
                self._report("duplicate-key", key_node, path, message, "keep one of the two")
                continue
            child = self.read(value_node, self.origin(key_node.start_mark), path)
            if key == DELETE_KEY:
                deletions.update(self._deletions(child, path))
            else:
                entries[key] = child
        return Block({**merged, **entries}, origin, (), deletions)

    def _deletions(self, node: Node, key_path: str) -> dict[str, Deletion]:
        leaves = node.children if isinstance(node, Items) else (node,)
        found: dict[str, Deletion] = {}
        for leaf in leaves:
            if not isinstance(leaf, Leaf) or not isinstance(leaf.value, str):
                message = "takes the names of keys, separated by commas"
                self._problems.append(Problem("directive", key_path, message, 'e.g. _delete_key: "a,b"', leaf.origin))
                continue
            found.update({name.strip(): Deletion(leaf.origin) for name in leaf.value.split(",") if name.strip()})
        return found

    def _report(self, rule: str, node: Any, key_path: str, message: str, hint: str) -> None:
        problem = Problem(rule, key_path, message, hint, self.origin(node.start_mark))
        if problem not in self._problems:
            self._problems.append(problem)


def read_yaml(path: Path, shown_path: str) -> tuple[Block | None, list[Problem]]:
    """The file's mapping and what is wrong with it; None if it cannot be read at all. `shown_path` is how messages name it."""
    start = Origin(shown_path, 1, 1)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return None, [Problem("file-unreadable", "", f"not UTF-8 text (byte {error.start})", "save the file as UTF-8", start)]
    except OSError as error:
        return None, [Problem("file-unreadable", "", f"cannot be read ({error.strerror})", "check the path and its permissions", start)]
    return parse_yaml(text, shown_path)


def parse_yaml(text: str, shown_path: str) -> tuple[Block | None, list[Problem]]:
    """As `read_yaml`, of a text that is at hand."""
    problems: list[Problem] = []
    start = Origin(shown_path, 1, 1)
    try:
        node = _read(text, shown_path, problems)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        origin = start if mark is None else Origin(shown_path, mark.line + 1, mark.column + 1)
        detail = ": ".join(part for part in (error.context, error.problem) if part)
        lines = text.splitlines()
        line = lines[origin.line - 1] if origin.line <= len(lines) else ""
        return None, [Problem("yaml-syntax", "", *_explained(detail or "malformed YAML", line, origin.column), origin)]
    except (yaml.YAMLError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        return None, [Problem("yaml-syntax", "", detail, "correct the YAML", start)]
    if node is None:
        return Block({}, start), []
    if not isinstance(node, Block):
        origin = start if isinstance(node, Leaf) else node.origin
        return None, [*problems, Problem("yaml-syntax", "", "a config file holds a mapping of keys at its top", "write key: value", origin)]
    return node, problems


def _explained(detail: str, line: str, column: int) -> tuple[str, str]:
    """What is wrong with a line that is no YAML, and what to do: the library names its own states, not the mistake."""
    if line[column - 1 : column] == "\t":
        return "a tab stands where the indentation is", "indent with spaces"
    if "???" in line:
        return detail, 'write "???" with its quotes inside {…} and […]'
    if "mapping values are not allowed" in detail:
        return "a second ': ' in one line", "put the text in quotes, or begin a new line for the key"
    return detail, "correct the YAML here"


def _read(text: str, shown_path: str, problems: list[Problem]) -> Node | None:
    """The document as nodes; None for an empty one. Raises what the YAML library raises."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        reader = _Reader(loader, shown_path, problems)
        start = Origin(shown_path, 1, 1) if isinstance(root, yaml.MappingNode) else reader.origin(root.start_mark)
        return reader.read(root, start, "")
    finally:
        loader.dispose()


def to_yaml(data: object) -> str:
    """Plain data as YAML text, keys in their order."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=140)
