"""From a resolved block to its model, and from pydantic's findings to one line each.

Owns the translation: where in the file a finding belongs, what is wrong in plain words, and a
did-you-mean for an unknown key. Findings about values that another stage reported are left out.
"""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from gym.config.errors import Problem, closest, listed
from gym.config.masking import shown_under
from gym.config.tree import Block, KeyPath, Node, at, dotted, plain

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
        return Problem("unknown-key", dotted(here), f"is not a key that is known here ({value})", hint, node.origin)
    if kind == "missing":
        parent = _deepest(block, location[:-1])
        return Problem("missing-key", dotted(here), "is required", f"add {location[-1]}: …", parent.origin)
    if kind in ("literal_error", "enum"):
        choices = str(context.get("expected", ""))
        near = closest(str(finding.get("input")), choices.replace("'", "").replace(" or ", ", ").split(", "))
        hint = f"did you mean '{near}'?" if near else f"one of: {choices}"
        return Problem(rule, dotted(here), f"is none of the values allowed here ({value})", hint, node.origin)
    if kind in _WANTED:
        return Problem(rule, dotted(here), f"is not {_WANTED[kind]} ({value})", f"write {_WANTED[kind]}", node.origin)
    message = str(finding["msg"])
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message[:1].lower() + message[1:]
    if kind not in ("value_error", "assertion_error"):
        message = f"{message} ({value})"
    return Problem(rule, dotted(here), message, "", node.origin)


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
    current: list[type[BaseModel]] = [model]
    for part in location:
        if isinstance(part, int):
            continue
        annotations = [candidate.model_fields[part].annotation for candidate in current if part in candidate.model_fields]
        current = [found for annotation in annotations for found in _models(annotation)]
    names: list[str] = []
    for candidate in current:
        for name, info in candidate.model_fields.items():
            names.append(info.alias or name)
    return names


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models(argument)]
