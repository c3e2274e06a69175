"""From a resolved block to its model, and from pydantic's findings to one line each.

Owns the translation: where in the file a finding belongs, what is wrong in plain words, and what to
do, with a did-you-mean for an unknown key. A model's own ValueError says `what — what to do`; one that
begins with the name of a field stands at that field. Findings about values that another stage
reported are left out.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from gym.config.errors import Problem, closest, listed
from gym.config.masking import shown_under
from gym.config.schema import KINDS, ServerRef
from gym.config.tree import Block, KeyPath, Node, at, dotted, parse_path, plain, written_at

M = TypeVar("M", bound=BaseModel)

_WANTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "mapping_type": "a mapping",
    "path_type": "a path",
}
_BOUNDS = {"greater_than": "raise it", "greater_than_equal": "raise it", "less_than": "lower it", "less_than_equal": "lower it"}
_FIELD = re.compile(r"([a-z_]\w*(?:\.[a-z_]\w*)*) ")
_SHALLOW = {*_WANTED, "literal_error", "none_required"}


def validate(
    model: type[M], path: KeyPath, block: Block, broken: Collection[KeyPath], rule: str = "wrong-value"
) -> tuple[M | None, list[Problem]]:
    """The block as its model, or None and why not. `path` is where the block stands, `broken` the paths already reported."""
    try:
        return model.model_validate(plain(block)), []
    except ValidationError as error:
        findings = [cast("dict[str, Any]", finding) for finding in error.errors(include_url=False)]
        places = {_location(block, finding["loc"]) for finding in findings}
        problems: list[Problem] = []
        for finding in findings:
            here = _location(block, finding["loc"])
            is_shallow = any(place[: len(here)] == here and len(place) > len(here) for place in places)
            if is_shallow and finding["type"] in _SHALLOW:
                continue  # another branch of a union: the branch that was meant says more
            problem = _problem(model, path, block, finding, broken, rule)
            if problem is not None:
                problems.append(problem)
        return None, list(dict.fromkeys(problems))


def _problem(
    model: type[BaseModel], path: KeyPath, block: Block, finding: Mapping[str, Any], broken: Collection[KeyPath], rule: str
) -> Problem | None:
    location = _location(block, finding["loc"])
    here = (*path, *location)
    if any(bad[: len(here)] == here or here[: len(bad)] == bad for bad in broken if len(bad) > len(path) or bad == here):
        return None
    node = _deepest(block, location)
    kind, context = str(finding["type"]), cast("dict[str, Any]", finding.get("ctx") or {})
    key = next((part for part in reversed(here) if isinstance(part, str)), "")
    value = shown_under(key, finding.get("input"))
    if kind == "extra_forbidden":
        known = _fields(model, location[:-1])
        near = closest(str(location[-1]), known)
        hint = f"did you mean '{near}'?" if near else (f"one of: {listed(sorted(known))}" if known else "remove it")
        meant = dotted((*here[:-1], near)) if near else ""
        return Problem("unknown-key", dotted(here), f"is not a key that is known here ({value})", hint, node.origin, meant=meant)
    if kind == "missing":
        parent = _deepest(block, location[:-1])
        return Problem("missing-key", dotted(here), "is required", f"add {location[-1]}: …", parent.origin, lacks=dotted(here))
    origin, annotations = written_at(node), _annotations(model, location)
    if kind in ("literal_error", "enum"):
        choices = str(context.get("expected", ""))
        near = closest(str(finding.get("input")), choices.replace("'", "").replace(" or ", ", ").split(", "))
        hint = f"did you mean '{near}'?" if near else f"one of: {choices}"
        return Problem(rule, dotted(here), f"is none of the values allowed here ({value})", hint, origin)
    if kind in _WANTED:
        quoted = "write it in quotes" if kind == "string_type" and isinstance(finding.get("input"), int | float) else ""
        hint = quoted or _reference(annotations, finding.get("input")) or f"write {_WANTED[kind]}"
        return Problem(rule, dotted(here), f"is not {_WANTED[kind]} ({value})", hint, origin)
    message = str(finding["msg"])
    if kind in _BOUNDS:
        message = message.removeprefix("Input should be ")
        hint = f"{_BOUNDS[kind]}, or write null" if type(None) in annotations else _BOUNDS[kind]
        return Problem(rule, dotted(here), f"must be {message} ({value})", hint, origin)
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message, _, hint = message.partition(" — ")
    field = _FIELD.match(message)
    if field is not None and at(node, parse_path(field[1])) is not None:
        here, origin = (*here, *parse_path(field[1])), written_at(_deepest(block, (*location, *parse_path(field[1]))))
        message = message[field.end() :]
    message = message[:1].lower() + message[1:]
    if kind not in ("value_error", "assertion_error"):
        message = f"{message} ({value})"
    return Problem(rule, dotted(here), message, hint, origin)


def _reference(annotations: Collection[Any], written: object) -> str:
    """How to write the reference that stands here as a mere name; empty if none is wanted."""
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, ServerRef) and isinstance(written, str):
            kinds = [kind for kind in KINDS if kind in get_args(annotation.model_fields["type"].annotation)]
            return f"write {{type: {kinds[0] if len(kinds) == 1 else '<kind>'}, name: {written}}}"
    return ""


def _location(block: Block, raw: tuple[Any, ...]) -> KeyPath:
    """pydantic's location without the parts that name a branch of a union or of a validator."""
    parts: list[str | int] = []
    for index, part in enumerate(raw):
        node = at(block, tuple(parts))
        is_last = index == len(raw) - 1
        if isinstance(node, Block) and (
            str(part) in node.entries or (is_last and isinstance(part, str) and part.isidentifier() and _plausible(part))
        ):
            parts.append(str(part))
        elif not isinstance(node, Block) and node is not None and isinstance(part, int):
            parts.append(part)
    return tuple(parts)


def _plausible(part: str) -> bool:
    return part not in ("str", "int", "float", "bool", "list", "dict", "none") and not part[:1].isupper() and part != "literal"


def _deepest(block: Block, location: KeyPath) -> Node:
    """The node at the location, or its nearest ancestor."""
    node: Node = block
    for end in range(1, len(location) + 1):
        found = at(block, location[:end])
        if found is None:
            break
        node = found
    return node


def _fields(model: type[BaseModel], location: KeyPath) -> list[str]:
    """The names that a model knows at a location below it."""
    current = [found for found in _annotations(model, location) if isinstance(found, type) and issubclass(found, BaseModel)]
    return [info.alias or name for candidate in current for name, info in candidate.model_fields.items()]


def _annotations(model: type[BaseModel], location: KeyPath) -> list[Any]:
    """The types that may stand at a location below a model, those of a union and of a list's entries each by itself."""
    current: list[Any] = [model]
    for part in location:
        if isinstance(part, int):
            continue
        models = [found for found in current if isinstance(found, type) and issubclass(found, BaseModel)]
        current = [
            each
            for found in models
            for name, info in found.model_fields.items()
            if part in (name, info.alias)
            for each in _parts(info.annotation)
        ]
    return current


def _parts(annotation: Any) -> list[Any]:
    arguments = get_args(annotation)
    return [found for argument in arguments for found in _parts(argument)] if arguments else [annotation]
