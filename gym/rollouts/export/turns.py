"""The token ids of a rollout, call by call, without what each prompt repeats of those before it.

A row with 300 calls of 100,000 tokens repeats 30 million ids, which as Python numbers would fill
the memory. So they are taken out of the line before it is parsed: a prompt that begins with the
text of the one before it and of its generation is compared as bytes, and only the rest is read.
Invariant: where that shortcut does not apply, `check_contiguous` decides, and the turns are the same.
"""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from gym.models.tokens import TOKEN_FIELDS, check_contiguous
from gym.protocol.responses import Item
from gym.rollouts.export.rollout import Rollout, Turn, Unusable

# Inside a string the second quote would be escaped: what matches is a key.
_ARRAY = re.compile(rb'"(?:%s)"\s*:\s*(\[[^\[\]"{}]*\])' % "|".join(TOKEN_FIELDS).encode())
_SEPARATORS = (b",", b", ")


class LiftedRow(dict[str, Any]):
    """A row whose output items have lost their token ids to `turns`."""

    turns: list[Turn]


def load_row(line: bytes) -> object:
    """What a line of JSON says; a LiftedRow if it has token ids that continue one another. Raises orjson.JSONDecodeError."""
    row = _lifted(line) if b'"generation_token_ids"' in line else None
    return row if row is not None else orjson.loads(line)


def turns_of(rollout: Rollout) -> list[Turn]:
    """The turns of a rollout; none if no item has token ids. Raises Unusable if they do not continue one another."""
    if rollout.lifted is not None:
        return rollout.lifted
    items = rollout.output
    marked = [number for number, item in enumerate(items) if any(item.get(name) is not None for name in TOKEN_FIELDS)]
    if not marked:
        return []
    if (problem := check_contiguous(items)) is not None:
        raise Unusable("token ids that cannot be trained on", problem)
    turns: list[Turn] = []
    known = 0
    for number in marked:
        prompt, generation, log_probs = (items[number][name] for name in TOKEN_FIELDS)
        turns.append(Turn(number, prompt[known:], generation, log_probs))
        known = len(prompt) + len(generation)
    return turns


def turns_wanted(rollout: Rollout) -> list[Turn]:
    """The turns of a rollout that must have some. Raises Unusable."""
    turns = turns_of(rollout)
    if not turns:
        raise Unusable("no token ids")
    return turns


def _lifted(line: bytes) -> LiftedRow | None:
    """The row without its token ids; None if they do not stand on output items alone, or do not continue as text."""
    spans = [match.span(1) for match in _ARRAY.finditer(line)]
    if len(spans) != sum(line.count(b'"%s"' % name.encode()) for name in TOKEN_FIELDS):
        return None
    try:
        row: Any = orjson.loads(_without(line, spans))
        numbered = _taken_from(row["response"]["output"])
        if sum(len(fields) for _, fields in numbered) != len(spans):
            return None  # an array elsewhere in the row is not ours to take
        lifted = LiftedRow(row)
        lifted.turns = list(_turns(line, spans, numbered))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return lifted


def _taken_from(items: list[Item]) -> list[tuple[int, dict[str, int]]]:
    """Takes the token fields off the items; what is left on a field is the number of its span."""
    marked = [(number, item) for number, item in enumerate(items) if any(name in item for name in TOKEN_FIELDS)]
    return [(number, {name: item.pop(name) for name in TOKEN_FIELDS if name in item}) for number, item in marked]


def _turns(line: bytes, spans: list[tuple[int, int]], numbered: list[tuple[int, dict[str, int]]]) -> Iterator[Turn]:
    """The turns. Raises ValueError, KeyError or TypeError where they must be looked at more closely."""
    before = [b""]
    for number, fields in numbered:
        prompt, generation, log_probs = (_span(line, spans[fields[name]]) for name in TOKEN_FIELDS)
        if not prompt or not generation:
            raise ValueError("nothing there")
        added = _after(prompt, before)
        before = [separator.join((prompt, generation)) for separator in _SEPARATORS]
        turn: list[Any] = [orjson.loads(b"[" + text + b"]") for text in (added, generation, log_probs)]
        if (problem := check_contiguous([dict(zip(TOKEN_FIELDS, turn, strict=True))])) is not None:
            raise ValueError(problem)
        yield Turn(number, *turn)


def _span(line: bytes, span: tuple[int, int]) -> bytes:
    """What stands between the brackets."""
    return line[span[0] + 1 : span[1] - 1].strip()


def _without(line: bytes, spans: list[tuple[int, int]]) -> bytes:
    """The line with the number of each span in its place."""
    parts: list[bytes] = []
    done = 0
    for number, (start, end) in enumerate(spans):
        parts += line[done:start], b"%d" % number
        done = end
    return b"".join([*parts, line[done:]])


def _after(prompt: bytes, before: list[bytes]) -> bytes:
    """What a prompt's text holds behind that of the tokens before it. Raises ValueError if it does not begin with them."""
    for text in before:
        rest = prompt.removeprefix(text).lstrip()
        if not text or (not rest and prompt == text):
            return rest
        if prompt.startswith(text) and rest.startswith(b","):
            return rest[1:]
    raise ValueError("other tokens")
