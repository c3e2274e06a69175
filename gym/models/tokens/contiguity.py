"""Whether the items of a training row can be trained on: the one check that tests, the builder's readers and the exporter share."""

from typing import Any

from gym.models.calls import TOKEN_FIELDS
from gym.protocol.responses import Item


def check_contiguous(items: list[Item]) -> str | None:
    """What is wrong with the token ids on these items, or None.

    Each item that has token ids must have all three fields, with a log probability for each of at
    least one generated token, and its prompt must begin with the prompt and the generation of the one before.
    """
    before: list[int] = []
    found = False
    for number, item in enumerate(items):
        present = [name for name in TOKEN_FIELDS if item.get(name) is not None]
        if not present:
            continue
        missing = [name for name in TOKEN_FIELDS if name not in present]
        if missing:
            return f"item {number} has {present[0]} and no {missing[0]}"
        prompt, generation, log_probs = (item[name] for name in TOKEN_FIELDS)
        if not all(isinstance(value, list) for value in (prompt, generation, log_probs)):
            return f"item {number} has token ids that are no list"
        if prompt[: len(before)] != before:
            return f"the prompt of item {number} leaves the tokens before it at token {_first_difference(prompt, before)}"
        if (problem := _problem(prompt[len(before) :], generation, log_probs)) is not None:
            return f"item {number}: {problem}"
        before = prompt + generation
        found = True
    return None if found else "no item has token ids"


def _problem(added: list[Any], generation: list[Any], log_probs: list[Any]) -> str | None:
    """What is wrong with the tokens that one item adds to those before it."""
    if not generation:
        return "nothing was generated"
    if len(log_probs) != len(generation):
        return f"{len(generation)} generated tokens have {len(log_probs)} log probabilities"
    if not set(map(type, added + generation)) <= {int}:
        return "a token id is no whole number"
    if not set(map(type, log_probs)) <= {float, int}:
        return "a log probability is no number"
    return None


def _first_difference(prompt: list[int], before: list[int]) -> int:
    return next((place for place, (ours, theirs) in enumerate(zip(prompt, before, strict=False)) if ours != theirs), len(prompt))
