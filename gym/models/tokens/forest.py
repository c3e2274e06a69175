"""The calls of a rollout as a forest: call B continues call A when A's prompt and generation are a prefix of B's prompt.

Owns which call continues which, token by token. Invariant: it depends on the tokens alone, not on
the order in which calls were recorded; a call is continued only by longer ones, so there is no
circle. A call that was not answered to its end, or has no ids, is in no tree.

Sequences are compared by digests of their bytes, taken in one pass over each prompt at every length
at which another call ends: what it costs grows with the number of tokens, not with that of pairs.

Left out: what the requests say in words (`conversation`, `breaks`).
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gym.models.calls import ModelCall, TokenIds

_End = tuple[int, bytes]
"""A sequence of tokens: its length and its digest."""


@dataclass(slots=True, eq=False)
class Node:
    """A call whose tokens are known."""

    call: ModelCall
    tokens: TokenIds
    parent: "Node | None" = None
    """The call that this one continues; None where a chain begins."""
    repeated: list[ModelCall] = field(default_factory=list[ModelCall])
    """Earlier calls with the same prompt and the same generation: the client asked again."""

    def path(self) -> "list[Node]":
        """The chain that ends here, from its beginning."""
        found: list[Node] = [self]
        while (parent := found[-1].parent) is not None:
            found.append(parent)
        return found[::-1]


@dataclass(slots=True)
class Forest:
    """All calls of a rollout."""

    calls: list[ModelCall]
    """Every call, in the order in which they began."""
    nodes: list[Node] = field(default_factory=list[Node])
    """Those with tokens, repeated ones once, in the order in which they began."""

    def node_of(self, call: ModelCall) -> Node | None:
        """Where a call stands; None if its tokens are not known."""
        return next((node for node in self.nodes if any(call is each for each in (node.call, *node.repeated))), None)

    def chains(self, first: Sequence[Node] = ()) -> list[list[Node]]:
        """Every node in exactly one chain: `first`, which must be a whole path, then what is left, along the most generated tokens."""
        after = self._continuations()
        after.update(dict.fromkeys(first))
        after.update(pairwise(first))
        later = {node for node in after.values() if node is not None}
        heads = [*first[:1], *(node for node in self.nodes if node not in later and node not in first[:1])]
        return [_follow(head, after) for head in heads]

    def _continuations(self) -> dict[Node, Node | None]:
        """For each node that is continued the one that its chain goes on with: where the most is generated."""
        weights: dict[Node, int] = {}
        chosen: dict[Node, Node | None] = {}
        for node in sorted(self.nodes, key=lambda node: len(node.tokens.prompt), reverse=True):
            best = chosen.get(node)
            weights[node] = len(node.tokens.generation) + (weights[best] if best is not None else 0)
            if node.parent is None:
                continue
            rival = chosen.get(node.parent)
            if rival is None or _rank(node, weights) > _rank(rival, weights):
                chosen[node.parent] = node
        return chosen


def _rank(node: Node, weights: dict[Node, int]) -> tuple[int, list[int], list[int]]:
    """Which of two continuations is the chain's: by what was generated, never by the order of recording."""
    return weights[node], node.tokens.generation, node.tokens.prompt


def _follow(node: Node, after: dict[Node, Node | None]) -> list[Node]:
    chain = [node]
    while (following := after.get(chain[-1])) is not None:
        chain.append(following)
    return chain


def tokens_of(call: ModelCall) -> TokenIds | None:
    """The tokens of a call that count: of one that was answered to its end, in a reply that can be read."""
    return call.notes.tokens if call.complete and call.response is not None else None


def build_forest(calls: Iterable[ModelCall]) -> Forest:
    """Find out which calls continue which."""
    forest = Forest(sorted(calls, key=lambda call: call.index))
    known = [(call, tokens) for call in forest.calls if (tokens := tokens_of(call)) is not None]
    lengths = sorted({len(tokens.prompt) + len(tokens.generation) for _, tokens in known})
    nodes: dict[tuple[int, _End], Node] = {}
    starts: dict[Node, list[_End]] = {}
    for call, tokens in known:
        marks = _marks(tokens, lengths)
        if marks is None:
            continue  # something that is no token id stands among them
        *passed, end = marks
        same = nodes.pop((len(tokens.prompt), end), None)
        node = Node(call, tokens, repeated=[*same.repeated, same.call] if same is not None else [])
        nodes[len(tokens.prompt), end] = node
        starts[node] = passed
    ends: dict[_End, Node] = {}
    for (_, end), node in nodes.items():
        # Nothing was generated: whoever has it as a prefix has the prompt before it as well.
        if node.tokens.generation and (end not in ends or len(node.tokens.generation) > len(ends[end].tokens.generation)):
            ends[end] = node
    for node in nodes.values():
        node.parent = next((ends[mark] for mark in reversed(starts[node]) if mark in ends), None)
    forest.nodes = sorted(nodes.values(), key=lambda node: node.call.index)
    return forest


def _marks(tokens: TokenIds, lengths: list[int]) -> list[_End] | None:
    """Digests of the prompt at each of `lengths`, then that of prompt and generation; None if an id is no id."""
    try:
        prompt, generation = memoryview(array("I", tokens.prompt)), array("I", tokens.generation)
    except (OverflowError, TypeError):
        return None
    running = hashlib.sha256()
    marks: list[_End] = []
    done = 0
    for length in _up_to(lengths, len(prompt)):
        running.update(prompt[done:length])
        marks.append((length, running.digest()))
        done = length
    running.update(prompt[done:])
    running.update(generation)
    marks.append((len(prompt) + len(generation), running.digest()))
    return marks


def _up_to(lengths: list[int], most: int) -> Iterator[int]:
    for length in lengths:
        if length > most:
            return
        yield length
