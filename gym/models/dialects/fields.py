"""Looking into JSON that others made: an absent or odd value reads as an empty one."""

from typing import Any, cast

Fields = dict[str, Any]


def fields_of(value: Any) -> Fields:
    """`value` if it is an object, else an empty one."""
    return cast(Fields, value) if isinstance(value, dict) else {}


def known_count(value: Any) -> int | None:
    """`value` if it counts something, and can be written as JSON again; None else."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def count_of(value: Any) -> int:
    """`value` if it counts something, else 0."""
    return known_count(value) or 0


def list_of(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []
