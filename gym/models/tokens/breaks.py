"""Where a conversation goes on in words and not in tokens, and why.

A request that continues a call adds to it the call's reply and what the environment answered. If
it holds more of the model's own turns than the calls that it continues token by token, something
between them is missing from the chain: a reply that the client changed or that was tokenised anew,
or one whose tokens are not known. The messages of the requests tell these apart.

Invariant: a chain without a break holds every turn of the model that stands in its last prompt and
was made in this rollout. Turns that no call made, as those of a data set's prompt, break nothing.
"""

from typing import Literal

from gym.models.calls import ModelCall
from gym.models.tokens.conversation import Key, Reader, is_own_key, messages_of, turns
from gym.models.tokens.forest import Forest, Node, tokens_of

Break = Literal["history_edited", "retokenized", "incomplete_call", "no_token_ids"]


def find_breaks(forest: Forest, reader: Reader) -> dict[Node, Break]:
    """The nodes at which chains must be cut; the forest is left as it is."""
    spoken = {node: turns(messages_of(node.call)) for node in forest.nodes}
    found: dict[Node, Break] = {}
    for node in forest.nodes:
        accounted = spoken[node.parent] + 1 if node.parent is not None else 0
        if spoken[node] > accounted and (reason := _reason(node, forest, reader)) is not None:
            found[node] = reason
    return found


def _reason(node: Node, forest: Forest, reader: Reader) -> Break | None:
    """Why a request holds turns of the model that its chain lacks; None if no call made them."""
    said = reader.request(node.call)
    earlier = [call for call in forest.calls if call.index < node.call.index]
    nearest = _nearest(said, earlier, reader)
    quoted = [call for call in nearest if _ends_in(said[len(reader.request(call)) :], reader.reply(call))]
    for call in quoted:
        if tokens_of(call) is not None:
            return "retokenized"
    if quoted:
        return "no_token_ids" if quoted[-1].complete else "incomplete_call"
    if nearest and all(not call.complete for call in nearest):
        return "incomplete_call"  # what stands there is what the client had of its reply
    own = {key for key in said if is_own_key(key)}
    if nearest or node.parent is not None or any(own.intersection(reader.reply(call)) for call in earlier):
        return "history_edited"
    return None


def _nearest(said: list[Key], earlier: list[ModelCall], reader: Reader) -> list[ModelCall]:
    """The calls with the longest request that `said` goes on from."""
    found: list[ModelCall] = []
    for call in sorted(earlier, key=lambda call: len(reader.request(call)), reverse=True):
        if found and len(reader.request(call)) < len(reader.request(found[0])):
            break
        if _goes_on(said, reader.request(call)):
            found.append(call)
    return sorted(found, key=lambda call: call.index)


def _goes_on(said: list[Key], before: list[Key]) -> bool:
    """Whether `said` begins with all of `before`, and then the model speaks."""
    length = len(before)
    return len(said) > length and is_own_key(said[length]) and said[length - 1] == before[-1] and said[:length] == before


def _ends_in(added: list[Key], reply: list[Key]) -> bool:
    """Whether what a request adds to an earlier one is that one's reply, and nothing more of the model's own."""
    return bool(reply) and added[: len(reply)] == reply and not any(map(is_own_key, added[len(reply) :]))
