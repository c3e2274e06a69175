"""Reading fields of published rows, each of which has a few forms in the wild. Every error is a ValueError that names the field."""

import ast
import json
from collections.abc import Mapping
from typing import Any, cast

_IMAGE_NAMES = ("instance_id", "instance_id_s", "instance_id_1776")


def text(row: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A field that must be text; `default` stands for one that is missing or null."""
    value = row.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {type(value).__name__}")
    return value


def word(row: Mapping[str, Any], name: str) -> str:
    """A field that must be text and not empty."""
    value = text(row, name)
    if not value.strip():
        raise ValueError(f"{name} must not be empty")
    return value


def test_names(row: Mapping[str, Any], name: str) -> list[str]:
    """A list of tests, which data sets write as a list, a JSON string or a Python literal."""
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = _literal(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"{name} is neither JSON nor a Python list") from error
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise ValueError(f"{name} must be a list of test names")
    return cast("list[str]", value)


def _literal(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return ast.literal_eval(value)


def required_tests(row: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    """The tests that these fields name together. None at all is an error: a task that asks for nothing is solved by anything."""
    tests = tuple(dict.fromkeys(test for name in names for test in test_names(row, name)))
    if not tests:
        raise ValueError(f"{' and '.join(names)} name no test that must pass")
    return tests


def image_of(row: Mapping[str, Any], instance_id: str, template: str | None, published: str, *, field: str = "image") -> str:
    """The image: that of the configuration's template, else the row's own in `field`, else the published name (a template too)."""
    own = row.get(field)
    if own is not None and not (isinstance(own, str) and own):
        raise ValueError(f"{field} must be the name of an image, got {own!r}")
    return own if own and not template else image_from_template(template or published, instance_id)


def image_from_template(template: str, instance_id: str) -> str:
    """An image's name: `{instance_id}` as it is, `{instance_id_s}` and `{instance_id_1776}` lower-case with `__` replaced.

    Raises ValueError for another placeholder.
    """
    lower = instance_id.lower()
    values = dict(zip(_IMAGE_NAMES, (instance_id, lower.replace("__", "_s_"), lower.replace("__", "_1776_")), strict=True))
    try:
        return template.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        placeholders = ", ".join(f"{{{name}}}" for name in _IMAGE_NAMES)
        raise ValueError(f"image_template {template!r} has a placeholder that no row fills in ({error}) — use {placeholders}") from error
