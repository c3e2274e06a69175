"""The training row of a rollout: the chain that ends in the final answer, as Responses items with token ids.

Each call's items carry its prompt, generation and log probabilities on the last of them; between
calls stand the items that the environment added. Invariants: no token is delivered that an engine
did not give; what is delivered continues token by token; whoever cannot trust it finds a
`masked_reason`, and what was left out is counted.
"""

from dataclasses import dataclass
from typing import Any, Literal

from gym.models.calls import TOKEN_FIELDS, ModelCall
from gym.models.tokens.breaks import Break, find_breaks
from gym.models.tokens.conversation import Reader, as_items, is_own, messages_of, reply_items, turns
from gym.models.tokens.final import find_final
from gym.models.tokens.forest import Forest, Node, build_forest
from gym.protocol.responses import Item, assistant_message, function_calls

MaskedReason = Break | Literal["no_final_call", "capture_incomplete"]


@dataclass(frozen=True, slots=True)
class Training:
    """What there is to train on."""

    items: list[Item] | None
    """The row's output items; None if nothing can be delivered."""
    report: dict[str, Any]
    """`_ng_token_capture`."""
    masked_reason: MaskedReason | None
    """Why the row must not be trained on; None if it may."""


def training_of(calls: list[ModelCall], response: dict[str, Any] | None, *, capture_complete: bool = True) -> Training:
    """Build the training row of a rollout from all of its calls and the agent's response.

    `capture_complete=False` says that calls may be missing from the record; so does a gap in their indexes.
    """
    forest = build_forest(calls)
    breaks = find_breaks(forest, Reader())
    for node in breaks:
        node.parent = None
    final = find_final(forest.calls, response)
    end = forest.node_of(final) if final is not None else None
    path = end.path() if end is not None else []
    reason = _reason(forest, final, path, breaks, capture_complete)
    delivered = sum(len(node.tokens.generation) for node in path)
    items = _items(path) if delivered else None
    return Training(items, _report(forest, path, breaks, reason), reason)


def _reason(
    forest: Forest, final: ModelCall | None, path: list[Node], breaks: dict[Node, Break], capture_complete: bool
) -> MaskedReason | None:
    if not capture_complete or [call.index for call in forest.calls] != list(range(len(forest.calls))):
        return "capture_incomplete"
    if not forest.nodes:
        return "no_token_ids"
    if final is None:
        return "no_final_call"
    if not path:
        return "no_token_ids" if final.complete else "incomplete_call"
    if path[0] in breaks:
        return breaks[path[0]]
    return None if any(node.tokens.generation for node in path) else "no_token_ids"


def _report(forest: Forest, path: list[Node], breaks: dict[Node, Break], reason: MaskedReason | None) -> dict[str, Any]:
    chains = [
        {
            "calls": len(chain),
            "generated_tokens": sum(len(node.tokens.generation) for node in chain),
            "delivered": bool(path) and chain[0] is path[0],
        }
        for chain in forest.chains(path)
    ]
    generated = sum(chain["generated_tokens"] for chain in chains)
    delivered = sum(chain["generated_tokens"] for chain in chains if chain["delivered"])
    return {
        "n_calls": len(forest.calls),
        "n_calls_with_tokens": sum(1 + len(node.repeated) for node in forest.nodes),
        "n_repeated_calls": sum(len(node.repeated) for node in forest.nodes),
        "chains": chains,
        "generated_tokens": generated,
        "delivered_tokens": delivered,
        "delivered_fraction": delivered / generated if generated else 0.0,
        "masked_reason": reason,
        "breaks": [{"call": node.call.index, "reason": why} for node, why in breaks.items()],
    }


def _items(path: list[Node]) -> list[Item]:
    items: list[Item] = []
    for place, node in enumerate(path):
        if place:
            items += _between(path[place - 1], node)
        items += _generated(node)
    return items


def _generated(node: Node) -> list[Item]:
    """What the model said in a call, with the tokens on the last item."""
    items = [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in reply_items(node.call)]
    if node.tokens.generation:
        # Tokens that became no item, such as an end of turn alone, belong to a message without text.
        items = items or [assistant_message("")]
        items[-1] |= node.tokens.fields
    return items


def _between(before: Node, after: Node) -> list[Item]:
    """What the environment added between a call and the one that continues it, with the call ids of the first call's reply."""
    messages = messages_of(after.call)
    earlier = messages_of(before.call)
    if turns(messages) == turns(earlier):
        start = len(earlier)  # the client left out a reply that said nothing
    else:
        start = next((place for place in range(len(messages), 0, -1) if is_own(messages[place - 1])), len(messages))
    quoted = as_items(after.call.dialect, messages[len(earlier) : start])
    new_ids = zip(function_calls(quoted), function_calls(reply_items(before.call)), strict=False)
    given = {theirs.get("call_id"): ours.get("call_id") for theirs, ours in new_ids}
    return [
        {**item, "call_id": given.get(item["call_id"], item["call_id"])} if item.get("call_id") is not None else item
        for item in as_items(after.call.dialect, messages[start:])
    ]
