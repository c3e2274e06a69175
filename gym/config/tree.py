"""A configuration before it is resolved: a tree of nodes that remember where they were written.

Owns the node types, the layer merge and the dotted paths. Invariants: nodes are never changed once
made, so subtrees are shared freely; the merge agrees with `OmegaConf.merge` (mappings merge, all
else replaces, `???` never hides a value), to which it adds origins and `_delete_key`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gym.config.plan import Origin

Scalar = str | int | float | bool | None
KeyPath = tuple[str | int, ...]

MISSING = "???"
DELETE_KEY = "_delete_key"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar."""

    value: Scalar
    origin: Origin
    history: tuple[Origin, ...] = ()
    """Where the values that it overrode were set, newest first."""
    source: Origin | None = None
    """Where the value was written that `${…}` took."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    children: tuple["Node", ...]
    origin: Origin
    history: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Deletion:
    """One name of a `_delete_key`; `found` once something was deleted by it."""

    origin: Origin
    found: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping. Its keys are text, as written."""

    entries: Mapping[str, "Node"]
    origin: Origin
    history: tuple[Origin, ...] = ()
    deletions: Mapping[str, Deletion] = field(default_factory=dict[str, Deletion])
    """What this mapping takes away from whatever it is merged over."""


Node = Leaf | Items | Block


def written_at(node: Node) -> Origin:
    """Where the value itself was written: what is wrong with it is to be put right there."""
    return node.source if isinstance(node, Leaf) and node.source is not None else node.origin


def origin_of(root: Node, path: KeyPath) -> Origin | None:
    """Where the value at a path was written, or its nearest ancestor; None where nothing of it was."""
    for end in range(len(path), 0, -1):
        node = at(root, path[:end])
        if node is not None:
            return written_at(node)
    return None


def is_missing(node: Node) -> bool:
    """Whether a value must still be given here."""
    return isinstance(node, Leaf) and node.value == MISSING


def is_null(node: Node | None) -> bool:
    """Whether the node is an explicit null."""
    return isinstance(node, Leaf) and node.value is None


def merge(base: Node, over: Node) -> Node:
    """`over` laid upon `base`."""
    if isinstance(base, Block) and isinstance(over, Block):
        return _merge_blocks(base, over)
    if is_missing(over) and not is_missing(base):
        return base
    return replace(over, history=(*over.history, base.origin, *base.history))


def _merge_blocks(base: Block, over: Block) -> Block:
    entries = dict(base.entries)
    deletions = dict(base.deletions)
    for name, deletion in over.deletions.items():
        found = entries.pop(name, None) is not None
        earlier = deletions.get(name)
        deletions[name] = replace(deletion, found=found or deletion.found or (earlier is not None and earlier.found))
    for key, node in over.entries.items():
        below = entries.get(key)
        entries[key] = node if below is None else merge(below, node)
    return Block(entries, over.origin, (*over.history, base.origin, *base.history), deletions)


def inherit(source: Node, own: Block) -> Node:
    """`own` laid upon what it inherits; own history comes first, and the keys that `own` deletes go from the source only."""
    if not isinstance(source, Block):
        return source if not own.entries else own
    return _merge_blocks(source, own)


def at(node: Node | None, path: KeyPath) -> Node | None:
    """The node at a path below `node`, or None."""
    for part in path:
        if isinstance(node, Block):
            node = node.entries.get(str(part))
        elif isinstance(node, Items):
            index = int(part) if str(part).isdigit() else -1
            node = node.children[index] if 0 <= index < len(node.children) else None
        else:
            return None
    return node


def assign(root: Block, path: KeyPath, node: Node) -> Block:
    """A copy of the tree with `node` put at `path`; mappings on the way are made as needed."""
    head, rest = str(path[0]), path[1:]
    entries = dict(root.entries)
    entries[head] = node if not rest else _assign_below(entries.get(head), rest, node)
    return replace(root, entries=entries)


def _assign_below(child: Node | None, rest: KeyPath, node: Node) -> Node:
    if isinstance(child, Items) and str(rest[0]).isdigit() and int(rest[0]) < len(child.children):
        children = list(child.children)
        index = int(rest[0])
        children[index] = node if len(rest) == 1 else _assign_below(children[index], rest[1:], node)
        return replace(child, children=tuple(children))
    if isinstance(child, Block):
        return assign(child, rest, node)
    made = Block({}, node.origin, () if child is None else (child.origin, *child.history))
    return assign(made, rest, node)


def plain(node: Node) -> Any:
    """The node as plain data, unresolved."""
    if isinstance(node, Block):
        return {key: plain(child) for key, child in node.entries.items()}
    if isinstance(node, Items):
        return [plain(child) for child in node.children]
    return node.value


def walk(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
    """Every node below and including `node`, parents first."""
    yield path, node
    if isinstance(node, Block):
        for key, child in node.entries.items():
            yield from walk(child, (*path, key))
    elif isinstance(node, Items):
        for index, child in enumerate(node.children):
            yield from walk(child, (*path, index))


def from_plain(value: object, origin: Origin) -> Node:
    """Plain data (of the command line, say) as nodes that all carry one origin."""
    if isinstance(value, dict):
        items: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return Block({str(key): from_plain(child, origin) for key, child in items.items()}, origin)
    if isinstance(value, list | tuple):
        children: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return Items(tuple(from_plain(child, origin) for child in children), origin)
    if value is None or isinstance(value, str | int | float | bool):
        return Leaf(value, origin)
    return Leaf(str(value), origin)


def dotted(path: KeyPath) -> str:
    """A path as it is written: `a.b[0].c`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def parse_path(text: str) -> KeyPath:
    """The opposite of `dotted`; `a.0.b` is understood too, because lists are indexed by text or number alike."""
    parts: list[str | int] = []
    for piece in text.replace("[", ".").replace("]", "").split("."):
        if piece:
            parts.append(int(piece) if piece.isdigit() else piece)
    return tuple(parts)
