"""Saying a thing once: which earlier call of a rollout already holds the beginning of a sequence.

A conversation is sent anew with every call, so a record of whole requests would grow with the square
of its length. Here each beginning of a sequence is known by one chained digest, and the longest known
one is found in a single pass. Invariant: what `Beginnings` knows stands in the file, since a call is
made known only once it was written. Digests are long enough that equal ones mean equal sequences.
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, cast

import orjson

BLOCK = 128
"""Tokens are compared, and said again, in pieces of so many."""

_SHORT = 128
"""Text shorter than this is cheaper to repeat than to refer to."""


class Beginnings:
    """The beginnings of sequences, and the call that has each."""

    def __init__(self) -> None:
        self._calls: dict[bytes, int] = {}

    def longest(self, chain: Sequence[bytes]) -> tuple[int, int]:
        """How many first links of `chain` are known, and the call that has them (-1: none)."""
        known, call = 0, -1
        for link in chain:
            found = self._calls.get(link)
            if found is None:
                break
            known, call = known + 1, found
        return known, call

    def add(self, chain: Iterable[bytes], call: int) -> None:
        """Make a call's sequence known."""
        for link in chain:
            self._calls.setdefault(link, call)


def chain_of(name: str, parts: Iterable[bytes]) -> list[bytes]:
    """The digest of each beginning of a sequence; sequences of different names are different."""
    link, chain = name.encode(), list[bytes]()
    for part in parts:
        link = blake2b(part, digest_size=16, key=link[:64]).digest()
        chain.append(link)
    return chain


def parts_of(value: Any) -> list[bytes] | None:
    """The JSON of each item of a list, or of a whole object or long text; None for what is not worth to be referred to."""
    if isinstance(value, list):
        return [orjson.dumps(item) for item in cast("list[Any]", value)] or None
    if isinstance(value, dict) or (isinstance(value, str) and len(value) >= _SHORT):
        return [orjson.dumps(value)]
    return None


def blocks_of(tokens: Iterable[int]) -> list[bytes]:
    """The whole blocks of a sequence of token ids."""
    packed = array("q", tokens).tobytes()
    size = BLOCK * 8
    return [packed[start : start + size] for start in range(0, len(packed) - size + 1, size)]
