"""`_inherit_from`, `_copy` and `_delete_key`, and the removal of instances by null.

Owns the order in which they act: sources before those that inherit from them, whatever the order
in the files; a circle is reported with its members. What a remaining top-level block inherits from
(the whole of it, down to its implementation block) counts as a template. `${inherit_from:a.b}` and
`${copy:a.b}` are the same two directives in the form of a value.
"""

import re
from dataclasses import dataclass, field, replace

from gym.config.errors import Problem, did_you_mean
from gym.config.plan import Origin
from gym.config.tree import Block, Items, KeyPath, Leaf, Node, at, dotted, inherit, is_null, parse_path

INHERIT = "_inherit_from"
COPY = "_copy"
_VALUE_FORM = re.compile(r"\$\{(inherit_from|copy):([^${}]+)\}")
_INSTANCE_DEPTH = 3  # <instance>.<kind>.<implementation>: inheriting from there leaves nothing of the instance to launch


@dataclass
class Resolved:
    """The tree without directives, and the top-level keys that others inherit from, with an example of who."""

    root: Block
    templates: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])
    """Top-level keys that a directive names at any depth."""
    faulty: set[str] = field(default_factory=set[str])
    """Top-level keys of which a part is missing, because a directive in them could not be carried out."""
    problems: list[Problem] = field(default_factory=list[Problem])


@dataclass(frozen=True)
class _Directive:
    name: str
    source: KeyPath
    origin: Origin


def resolve_directives(root: Block) -> Resolved:
    """Carries the directives out; problems are collected in the result."""
    return _Resolver(root).run()


class _Resolver:
    def __init__(self, root: Block) -> None:
        self._root = root
        self._done: dict[KeyPath, Node] = {}
        self._open: list[KeyPath] = []
        self._out = Resolved(root)

    def run(self) -> Resolved:
        for name in (INHERIT, COPY):
            if name in self._root.entries:
                origin = self._root.entries[name].origin
                self._report("directive", name, "stands outside any block", "put it into the instance that is to inherit", origin)
        for name, deletion in self._root.deletions.items():
            if not deletion.found:
                self._report("directive", "_delete_key", f"there is no key '{name}' to delete", "", deletion.origin)
        entries: dict[str, Node] = {}
        for key, node in self._root.entries.items():
            if key in (INHERIT, COPY):
                continue
            entries[key] = self._deep((key,), node)
        self._out.root = replace(self._root, entries=entries, deletions={})
        return self._out

    def _deep(self, path: KeyPath, node: Node) -> Node:
        if isinstance(node, Leaf) and not (isinstance(node.value, str) and node.value.startswith("${")):
            return node
        done = self._done.get(path)
        if done is not None:
            return done
        if path in self._open:
            circle = " -> ".join(dotted(member) for member in [*self._open[self._open.index(path) :], path])
            message = f"blocks inherit from each other in a circle ({circle})"
            self._report("inherit-cycle", dotted(path), message, "remove one of these _inherit_from or _copy", self._place(node))
            self._out.faulty.update(str(member[0]) for member in self._open)
            return Block({}, node.origin) if isinstance(node, Block) else node
        self._open.append(path)
        made = self._expand(path, node)
        self._open.pop()
        self._done[path] = made
        return made

    def _expand(self, path: KeyPath, node: Node) -> Node:
        directive, own = self._directive(path, node)
        merged = own
        if directive is not None:
            source = self._source(path, directive)
            if source is not None:
                merged = inherit(source, own) if isinstance(own, Block) else source
                if isinstance(merged, Block):
                    merged = replace(merged, origin=node.origin)
                elif not (isinstance(own, Block) and own.entries):
                    merged = replace(merged, history=(merged.origin, *merged.history), origin=node.origin)
        if isinstance(merged, Block):
            for name, deletion in merged.deletions.items():
                if not deletion.found:
                    known = [key for key in merged.entries if not key.startswith("_")]
                    hint = did_you_mean(name, known, otherwise="remove it")
                    self._report("directive", dotted((*path, "_delete_key")), f"there is no key '{name}' to delete", hint, deletion.origin)
            children = {key: self._deep((*path, key), child) for key, child in merged.entries.items()}
            return replace(merged, entries=children, deletions={})
        if isinstance(merged, Items):
            return replace(merged, children=tuple(self._deep((*path, index), child) for index, child in enumerate(merged.children)))
        return merged

    def _directive(self, path: KeyPath, node: Node) -> tuple[_Directive | None, Node]:
        """The node's directive, and the node without it."""
        if isinstance(node, Leaf):
            match = _VALUE_FORM.fullmatch(node.value.strip()) if isinstance(node.value, str) else None
            if match is None:
                return None, node
            name = INHERIT if match[1] == "inherit_from" else COPY
            return _Directive(name, parse_path(match[2].strip()), node.origin), Block({}, node.origin)
        if not isinstance(node, Block):
            return None, node
        named = [name for name in (INHERIT, COPY) if name in node.entries and not is_null(node.entries[name])]
        own = replace(node, entries={key: child for key, child in node.entries.items() if key not in (INHERIT, COPY)})
        if len(named) == 2:
            self._report("directive", dotted(path), f"has both {INHERIT} and {COPY}", "keep one of the two", node.entries[COPY].origin)
        if not named:
            return None, own
        value = node.entries[named[0]]
        if not isinstance(value, Leaf) or not isinstance(value.value, str) or not parse_path(value.value):
            hint = f"write {named[0]}: <instance>"
            self._report("directive", dotted((*path, named[0])), "takes the name of an instance or a dotted path", hint, value.origin)
            return None, own
        return _Directive(named[0], parse_path(value.value), value.origin), own

    def _place(self, node: Node) -> Origin:
        """Where a node's directive is written."""
        directive, _ = self._directive((), node)
        return node.origin if directive is None else directive.origin

    def _source(self, path: KeyPath, directive: _Directive) -> Node | None:
        """What the directive names, with its own directives carried out; None, and a problem, if there is nothing."""
        top = str(directive.source[0])
        self._out.used.add(top)
        source = self._look_up(directive.source)
        if source is None or is_null(source):
            what = "names a block that is removed (null)" if source is not None else "names a block that does not exist"
            candidates = (
                self._root.entries if len(directive.source) == 1 or top not in self._root.entries else self._siblings(directive.source)
            )
            hint = did_you_mean(
                str(directive.source[-1] if top in self._root.entries else top), candidates, otherwise="define it, or remove this"
            )
            key = dotted((*path, directive.name))
            self._report("inherit-unknown", key, f"{what} ({dotted(directive.source)})", hint, directive.origin)
            self._out.faulty.add(str(path[0]))
            return None
        if top in self._out.faulty:
            self._out.faulty.add(str(path[0]))
        if directive.name == INHERIT and len(directive.source) <= _INSTANCE_DEPTH and top != path[0]:
            self._out.templates.setdefault(top, str(path[0]))
        return source

    def _siblings(self, source: KeyPath) -> list[str]:
        parent = at(self._root, source[:-1])
        return list(parent.entries) if isinstance(parent, Block) else []

    def _look_up(self, source: KeyPath) -> Node | None:
        """The node at a path, resolved no wider than needed, so that one part of a block may inherit from another."""
        node: Node | None = self._root
        for index, part in enumerate(source):
            if not isinstance(node, Block | Items):
                return None
            node = at(node, (part,))
            if node is None:
                return None
            here = source[: index + 1]
            has_directive = isinstance(node, Leaf) or (isinstance(node, Block) and (INHERIT in node.entries or COPY in node.entries))
            if has_directive or index == len(source) - 1:
                return at(self._deep(here, node), source[index + 1 :])
        return None

    def _report(self, rule: str, key_path: str, message: str, hint: str, origin: Origin) -> None:
        problem = Problem(rule, key_path, message, hint, origin)
        if problem not in self._out.problems:
            self._out.problems.append(problem)
