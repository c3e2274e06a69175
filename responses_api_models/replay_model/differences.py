"""What of two requests counts as the same, and how a difference is told.

Invariant: all that a model could read is compared. Passed over is what a harness mints anew for each run and no model
sees: see `comparable`. A difference is told on one line, of bounded length, whatever the requests hold.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.dialects.fields import Fields, fields_of

_MINTED = "<an id of the client's own>"
_ABSENT = object()
_SHOWN = 72
"""Characters of a value in a message."""
_BEFORE = 24
"""How many of them stand before the first that differs."""
_PLAIN_KEY = re.compile(r"[\w-]{1,64}")


def comparable(dialect: Dialect, request: Fields, given: Collection[str]) -> Fields:
    """A request without what is bound to differ. `given` are the ids that recorded replies gave: they are played back, and stay."""
    kept = {name: value for name, value in request.items() if name not in ("model", "prompt_cache_key")}
    if dialect == "messages" and "metadata" in kept:
        kept["metadata"] = {name: value for name, value in fields_of(kept["metadata"]).items() if name != "user_id"}
    if dialect == "responses" and isinstance(kept.get("input"), list):
        kept["input"] = [_renamed(item, given) for item in kept["input"]]
    return kept


def _renamed(item: Any, given: Collection[str]) -> Any:
    """An item of the input; one that only refers to another is nothing but its id."""
    if not isinstance(item, dict) or item.get("type") == "item_reference":
        return item
    own = isinstance(item.get("id"), str) and item["id"] not in given
    return {**item, "id": _MINTED} if own else item


@dataclass(frozen=True)
class Difference:
    """One place at which two requests differ."""

    path: str
    recorded: Any
    got: Any

    def __str__(self) -> str:
        at = 0
        if isinstance(self.recorded, str) and isinstance(self.got, str):
            pairs = zip(self.recorded, self.got, strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.recorded), len(self.got)))
        return f"{self.path or 'the body'}: recorded {_shown(self.recorded, at)}, got {_shown(self.got, at)}"


def differences(recorded: Any, got: Any, path: str = "") -> Iterator[Difference]:
    """All places at which `got` is not as recorded, those of the recorded value first."""
    if recorded == got:
        return
    if isinstance(recorded, dict) and isinstance(got, dict):
        for name in (*recorded, *(name for name in got if name not in recorded)):
            yield from differences(recorded.get(name, _ABSENT), got.get(name, _ABSENT), _below(path, name))
    elif isinstance(recorded, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip_longest(recorded, got, fillvalue=_ABSENT)):
            yield from differences(one, other, f"{path}[{index}]")
    else:
        yield Difference(path, recorded, got)


def told(found: list[Difference], most: int = 2) -> str:
    """The first differences, and how many more there are."""
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(map(str, found[:most])) + more


def _below(path: str, name: str) -> str:
    if _PLAIN_KEY.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{_shown(name, 0)}]"


def _shown(value: Any, at: int) -> str:
    """A value as JSON, cut to what stands around character `at` of a text."""
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, str):
        start = max(0, at - _BEFORE)
        piece = value[start : start + _SHOWN]
        whole = f"{'…' if start else ''}{piece}{'…' if len(value) > start + _SHOWN else ''}"
        return orjson.dumps(whole).decode()
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
