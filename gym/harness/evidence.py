"""Reading what a harness wrote in its sandbox: it may be anything, so that nothing here can fail on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson


def json_lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of a file as objects; None for one that is none, such as the last of a run that was cut off."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                event: Any = orjson.loads(line)
            except orjson.JSONDecodeError:
                event = None
            yield cast(dict[str, Any], event) if isinstance(event, dict) else None


def an_object(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def a_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []
