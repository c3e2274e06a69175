"""The command line's overrides: Hydra's grammar, applied as Hydra applies it.

Owns the reading of `key=v`, `+key=v`, `++key=v`, `~key` and their application to a tree. Hydra's
parser takes a third of a second to import, so plain scalars are read here, by rules that give what
Hydra's grammar gives (tests compare the two); all else goes to Hydra. What differs on purpose: a
key counts as existing also where an inherited block or the top-level settings have it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from gym.config.errors import Problem, closest, shown
from gym.config.masking import MASK, is_placeholder, is_secret_key, shown_under
from gym.config.plan import Origin
from gym.config.tree import (
    Block,
    Deletion,
    Items,
    KeyPath,
    Leaf,
    Node,
    assign,
    at,
    from_plain,
    is_missing,
    is_null,
    merge,
    parse_path,
    plain,
)

COMMAND_LINE = Origin("command line")

Action = Literal["change", "add", "force", "delete"]

_PLAIN = re.compile(r"(?P<sign>\+{0,2})(?P<key>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\.(?:0|[1-9]\d*))*)=(?P<value>[\w./:@%*+-]*)", re.ASCII)
_DELETE = re.compile(r"~(?P<key>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\.(?:0|[1-9]\d*))*)", re.ASCII)
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.-]*", re.ASCII)
_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)\.[0-9]+")
_TEXT = re.compile(r"(?:[A-Za-z_/]|\./|\.\./)[\w./:@%*+-]*", re.ASCII)
_WORDS = {"true", "false", "null", "nan", "inf"}


@dataclass(frozen=True)
class Override:
    """One override as read: what it does to which key."""

    text: str
    action: Action
    key: str
    value: object = None
    has_value: bool = True

    @property
    def display(self) -> str:
        """The override as it may stand in a message."""
        key, equal, value = self.text.partition("=")
        return key + equal + (MASK if is_secret_key(self.key.rpartition(".")[2]) and not is_placeholder(value) else value)

    @property
    def is_container(self) -> bool:
        """Whether the value is a list or a mapping."""
        return isinstance(self.value, dict | list)

    @property
    def path(self) -> KeyPath:
        """The key as a path."""
        return parse_path(self.key)


def read_override(text: str) -> Override | Problem:
    """Reads one override; a `Problem` if it is not one."""
    return _read_plain(text) or _read_with_hydra(text)


def _read_plain(text: str) -> Override | None:
    """The fast path; None where it cannot be sure of what Hydra's grammar would say."""
    deleted = _DELETE.fullmatch(text)
    if deleted is not None:
        return Override(text, "delete", deleted["key"], has_value=False)
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    action: Action = ("change", "add", "force")[len(match["sign"])]
    written, key = match["value"], match["key"]
    word = written.lower()
    if word in ("true", "false"):
        return Override(text, action, key, word == "true")
    if word == "null":
        return Override(text, action, key, None)
    if _INT.fullmatch(written):
        return Override(text, action, key, int(written))
    if _FLOAT.fullmatch(written):
        return Override(text, action, key, float(written))
    if not written or (_TEXT.fullmatch(written) and word not in _WORDS):
        return Override(text, action, key, written)
    return None


def _read_with_hydra(text: str) -> Override | Problem:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    said = shown(_without_secret(text))
    hint = "write key=value, +key=value, ++key=value or ~key; quote a value that has spaces or brackets"
    try:
        parsed: Any = OverridesParser.create().parse_override(text)
    except (HydraException, ValueError) as error:
        # what the parser says quotes the value
        detail = f": {str(error).splitlines()[0].rstrip('. ')}" if said == shown(text) else ""
        return Problem("override-syntax", "", f"cannot read the override {said}{detail}", _quoting(text) or hint, COMMAND_LINE)
    key = str(parsed.key_or_group)
    if parsed.package is not None or "/" in key or not key:
        return Problem("override-syntax", "", f"the override {said} does not name a key", hint, COMMAND_LINE)
    if parsed.is_sweep_override():
        message = f"the override {said} gives several values"
        return Problem("override-syntax", key, message, f"one run takes one value; for a list write {key}=[a,b]", COMMAND_LINE)
    if parsed.is_delete():
        action: Action = "delete"
    elif parsed.is_force_add():
        action = "force"
    else:
        action = "add" if parsed.is_add() else "change"
    value = cast(object, parsed.value())
    if not isinstance(value, dict | list | str | int | float | bool | None):
        return Problem("override-syntax", key, f"the override {said} uses a function that has no meaning here", hint, COMMAND_LINE)
    return Override(text, action, key, cast(object, value), has_value="=" in text)


def _without_secret(text: str) -> str:
    """An override that could not be read, as it may stand in a message."""
    key, equal, value = text.partition("=")
    name = key.partition("@")[0].rpartition(".")[2].strip("+~ \"'")
    return key + equal + MASK if value and is_secret_key(name) and not is_placeholder(value) else text


def _quoting(text: str) -> str | None:
    """How to write an override whose value needs quotes: those of the grammar inside those of the shell. None if that is no help."""
    key, equal, value = text.partition("=")
    if not equal or not value or text != _without_secret(text) or not _KEY.fullmatch(key) or not text.isprintable():
        return None
    if set(value) & {"'", '"', "\\", "!"} or value.count("{") != value.count("}") or value.count("[") != value.count("]"):
        return None  # a quote or a bracket that was not closed: more quotes would hide it
    return f"if the value is text, quote it: '{key}=\"{value}\"'"


FieldsOf = Callable[[KeyPath], Collection[str]]
"""What the block at a path may hold beside what a file says of it; empty where nobody knows."""


def apply_overrides(
    root: Block, overrides: Sequence[Override], known_keys: Collection[str], fields_of: FieldsOf = lambda _: ()
) -> tuple[Block, list[Problem]]:
    """The tree with the overrides applied in their order, and the problems with those that cannot be.

    `known_keys` are top-level keys that may be set although no file mentions them; `fields_of` is asked for a did-you-mean.
    """
    problems: list[Problem] = []
    for override in overrides:
        applied = _apply(root, override, known_keys, fields_of)
        if isinstance(applied, Problem):
            problems.append(applied)
        else:
            root = applied
    return root, problems


def _apply(root: Block, override: Override, known_keys: Collection[str], fields_of: FieldsOf) -> Block | Problem:
    path = override.path
    existing = find_inherited(root, path)
    if override.action == "delete":
        return _delete(root, override, existing)
    if override.action == "change" and existing is None and path[0] not in known_keys:
        hint = _nearest(root, path, override, fields_of) or f"to add a new key write +{override.display}"
        return Problem("override-unknown-key", override.key, f"there is no such key to override ({override.display})", hint, COMMAND_LINE)
    may_add = existing is None or is_null(existing) or is_missing(existing) or override.is_container
    if override.action == "add" and isinstance(existing, Leaf) and not may_add:
        hint = f"write {override.display[1:]} to change it, or +{override.display} to set it either way"
        message = f"the key is set already ({shown_under(str(path[-1]), existing.value)})"
        return Problem("override-exists", override.key, message, hint, COMMAND_LINE)
    node = from_plain(override.value, COMMAND_LINE)
    own = at(root, path)
    if isinstance(own, Items) and isinstance(node, Block):
        return Problem(
            "override-type", override.key, "a mapping cannot be laid over a list", "give the whole list: key=[a,b]", COMMAND_LINE
        )
    return assign(root, path, node if own is None else merge(own, node))


def _delete(root: Block, override: Override, existing: Node | None) -> Block | Problem:
    path = override.path
    if existing is None:
        hint = _nearest(root, path, override) or "drop the override"
        return Problem("override-unknown-key", override.key, "there is no such key to delete", hint, COMMAND_LINE)
    if override.has_value and override.value is not None and plain(existing) != override.value:
        message = f"not deleted: the value is {shown_under(str(path[-1]), plain(existing))}, another one"
        return Problem("override-delete", override.key, message, f"write ~{override.key} to delete it whatever its value", COMMAND_LINE)
    parent = at(root, path[:-1])
    if isinstance(parent, Items):
        return Problem(
            "override-delete", override.key, "an entry of a list cannot be deleted", "give the whole list: key=[a,b]", COMMAND_LINE
        )
    name = str(path[-1])
    own = parent if isinstance(parent, Block) else Block({}, COMMAND_LINE)
    entries = {key: node for key, node in own.entries.items() if key != name}
    deletions = own.deletions if len(path) == 1 else {**own.deletions, name: Deletion(COMMAND_LINE, found=True)}
    changed = replace(own, entries=entries, deletions=deletions)
    return changed if len(path) == 1 else assign(root, path[:-1], changed)


def find_inherited(root: Block, path: KeyPath) -> Node | None:
    """The node at a path, looking also into the blocks that those on the way inherit from or copy."""
    return _find(root, root, path, depth=0)


def _find(root: Block, node: Node | None, path: KeyPath, depth: int) -> Node | None:
    if node is None or not path:
        return node
    if not isinstance(node, Block):
        return at(node, path)
    head, rest = str(path[0]), path[1:]
    own = node.entries.get(head)
    found = _find(root, own, rest, depth) if own is not None else None
    if found is not None or depth > 32:
        return found
    for directive in ("_inherit_from", "_copy"):
        source = node.entries.get(directive)
        if isinstance(source, Leaf) and isinstance(source.value, str):
            found = _find(root, root, (*parse_path(source.value), *path), depth + 1)
            if found is not None:
                return found
    return None


def _nearest(root: Block, path: KeyPath, override: Override, fields_of: FieldsOf = lambda _: ()) -> str:
    """A did-you-mean for the first part of the path that exists nowhere."""
    for end in range(1, len(path) + 1):
        if find_inherited(root, path[:end]) is not None:
            continue
        parent = find_inherited(root, path[: end - 1])
        names = [name for name in parent.entries if not name.startswith("_")] if isinstance(parent, Block) else []
        fields = fields_of(path[: end - 1])
        near = closest(str(path[end - 1]), [*names, *fields])
        if near is None or str(path[end - 1]) in fields:
            return ""
        better = ".".join(str(part) for part in (*path[: end - 1], near, *path[end:]))
        if near not in names:
            return f"did you mean '+{better}'?"
        plus = f"; to add a new key write +{override.display}" if override.action == "change" else ""
        return f"did you mean '{better}'?{plus}"
    return ""
