"""Changes values of a YAML text and leaves every other byte of it: comments, order, quotes, spacing.

Owns where a value stands in the text. Invariants: a key is never removed and never moved (what is
gone is written as null), and what cannot be changed so is refused (`CannotEdit`), not reformatted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import yaml

_yaml: Any = yaml  # its types are incomplete
_Edit = tuple[int, int, str]
_Target = Mapping[str, Any]


class CannotEdit(Exception):
    """The text is written in a way that cannot be changed in place; `str()` of it says in which."""


def edit(text: str, changes: _Target, order: Sequence[str]) -> str:
    """The text with the top-level keys of `changes` set to plain data; lists of mappings are matched by their `name`.

    A key that is not there yet is put after the nearest of those that come before it in `order`, unless its value is None or empty.
    """
    root = _yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise CannotEdit("it is no mapping")
    return _Editor(text).rewritten(0, len(text), _Editor(text).mapping(root, changes, order))


class _Editor:
    """One text, and where things stand in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def rewritten(self, start: int, end: int, edits: list[_Edit]) -> str:
        """The part of the text from `start` to `end`, changed."""
        out, at = "", start
        for first, last, new in sorted(edits, key=lambda one: one[:2]):
            out, at = out + self._text[at:first] + new, last
        return out + self._text[at:end]

    def mapping(self, node: Any, target: _Target, order: Sequence[str]) -> list[_Edit]:
        edits: list[_Edit] = []
        entries = {str(key.value): (key, value) for key, value in node.value}
        for name, wanted in target.items():
            if name in entries:
                edits += self._value(*entries[name], wanted, over_lines=_is_block(wanted) and not node.flow_style)
        present = list(entries)
        for name in [name for name in order if name in target and name not in entries and not _goes_without_saying(name, target[name])]:
            before = [other for other in order[: order.index(name)] if other in present]
            after = entries[before[-1]][1] if before else entries[present[0]][1]
            edits.append(self._inserted(node, after, name, target[name]))
        return self._joined(edits)

    def _joined(self, edits: list[_Edit]) -> list[_Edit]:
        """Several insertions at one place become one, in their order."""
        places: dict[tuple[int, int], str] = {}
        for first, last, new in edits:
            places[(first, last)] = places.get((first, last), "") + new
        return [(first, last, new) for (first, last), new in places.items()]

    def _inserted(self, node: Any, after: Any, name: str, value: Any) -> _Edit:
        end = self._content_end(after)
        if node.flow_style:
            return end, end, f", {name}: {_inline(value)}"
        indent = " " * node.value[0][0].start_mark.column
        lines = [f"{indent}{name}:", *self._items(value, indent)] if _is_block(value) else [f"{indent}{name}: {_inline(value)}"]
        end = self._line_end(end)
        return end, end, "".join(self._newline + line for line in lines)

    def _value(self, key: Any, node: Any, wanted: Any, over_lines: bool) -> list[_Edit]:
        if _plain(node) == wanted:
            return []
        if node.start_mark.index < key.end_mark.index:
            raise CannotEdit(f"{key.value} is an alias (*name) of something written elsewhere")
        if (_is_block(wanted) or wanted == []) and _is_named(node):
            return self._sequence(key, node, cast("list[dict[str, Any]]", wanted))
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            first = self._line_start(node.start_mark.index)
            last = self._line_end(self._content_end(node))
            self._refuse_comments(key, first, last)
            if over_lines:
                return [(first, last, self._newline.join(self._items(wanted, " " * key.start_mark.column)))]
            colon = self._after_colon(key)
            return [(colon, colon, f" {_inline(wanted)}"), (first - len(self._newline), last, "")]
        first, last = node.start_mark.index, self._content_end(node)
        if isinstance(node, yaml.CollectionNode):
            self._refuse_comments(key, first, last)
        if not over_lines:
            return [(first, last, ("" if self._text[first - 1].isspace() else " ") + _inline(wanted))]
        end = self._line_end(last)
        lines = self._items(wanted, " " * key.start_mark.column)
        return [(len(self._text[:first].rstrip(" ")), last, ""), (end, end, self._newline + self._newline.join(lines))]

    def _sequence(self, key: Any, node: Any, wanted: list[dict[str, Any]]) -> list[_Edit]:
        """A list of named mappings: each keeps its text; what stands between two stays before the second."""
        items = {str(_plain(item)["name"]): item for item in node.value}
        kept = [entry for entry in wanted if entry["name"] in items]
        edits = {str(entry["name"]): self.mapping(items[str(entry["name"])], entry, list(entry)) for entry in kept}
        if [entry["name"] for entry in wanted] == list(items):
            return [one for found in edits.values() for one in found]
        if node.flow_style:
            self._refuse_comments(key, node.start_mark.index, node.end_mark.index)
            return [(node.start_mark.index, node.end_mark.index, _inline([_without_defaults(entry) for entry in wanted]))]
        spans = {name: (self._line_start(item.start_mark.index), self._line_end(self._content_end(item))) for name, item in items.items()}
        starts, ends = [start for start, _ in spans.values()], [end for _, end in spans.values()]
        gaps = {name: self._text[before:start] for name, before, start in zip(spans, [starts[0], *ends], starts, strict=False)}
        indent = self._text[starts[0] :].partition("-")[0]
        pieces = [gap.strip("\r\n") for name, gap in gaps.items() if gap.strip() and name not in edits]  # comments outlive their subject
        for entry in wanted:
            name = str(entry["name"])
            if name in edits:
                pieces.append(gaps[name].removeprefix(self._newline) + self.rewritten(*spans[name], edits[name]))
            else:
                pieces += self._items([entry], indent)
        if wanted:
            return [(starts[0], ends[-1], self._newline.join(pieces))]
        colon = self._after_colon(key)
        return [(colon, colon, " []"), (starts[0] - len(self._newline), ends[-1], "".join(self._newline + piece for piece in pieces))]

    def _items(self, entries: list[dict[str, Any]], indent: str) -> list[str]:
        lines: list[str] = []
        for entry in entries:
            written = [f"{name}: {_inline(value)}" for name, value in _without_defaults(entry).items()]
            lines += [f"{indent}{'- ' if index == 0 else '  '}{line}" for index, line in enumerate(written)]
        return lines

    def _content_end(self, node: Any) -> int:
        """Behind the last character that belongs to the node: comments and blank lines that follow do not."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            last = node.value[-1]
            return self._content_end(last[1] if isinstance(last, tuple) else last)
        return len(self._text[: node.end_mark.index].rstrip()) if getattr(node, "style", None) in ("|", ">") else node.end_mark.index

    def _after_colon(self, key: Any) -> int:
        return self._text.index(":", key.end_mark.index) + 1

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        end = len(self._text) if end < 0 else end
        return end - 1 if self._text[:end].endswith("\r") else end

    def _refuse_comments(self, key: Any, first: int, last: int) -> None:
        if "#" in self._text[first:last]:
            raise CannotEdit(f"{key.value} has comments inside, and must be written anew as a whole")


def _plain(node: Any) -> Any:
    loader = _yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _is_block(value: Any) -> bool:
    """Whether it is written over several lines."""
    return isinstance(value, list) and bool(cast("list[Any]", value)) and isinstance(value[0], dict)


def _is_named(node: Any) -> bool:
    plain = cast("list[Any]", _plain(node)) if isinstance(node, yaml.SequenceNode) else []
    return bool(plain) and all(isinstance(entry, dict) and "name" in entry for entry in plain)


def _goes_without_saying(name: str, value: Any) -> bool:
    return value in (None, []) or (name, value) == ("num_repeats", 1)


def _without_defaults(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not _goes_without_saying(name, value)}


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=100_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
