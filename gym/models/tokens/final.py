"""Which call made the final answer.

The agent's response is compared with what the calls were answered: by what it says at its end,
since an agent may give items new ids, and by its id where that leaves a choice. Nothing is guessed:
an answer that no call made has no call.
"""

from typing import Any

from gym.models.calls import ModelCall
from gym.models.tokens.conversation import Key, is_own, key_of, objects, reply_items
from gym.models.tokens.forest import tokens_of
from gym.protocol.responses import Item


def find_final(calls: list[ModelCall], response: dict[str, Any] | None) -> ModelCall | None:
    """The call whose reply ends the response; among calls that said the same the one with the response's id, else the last with tokens."""
    if response is None:
        return None
    answer = _said(objects(response.get("output")))
    replies = {call.index: _said(reply_items(call)) for call in calls}
    ending = [call for call in calls if _ends_with(answer, replies[call.index])]
    if ending:
        most = max(len(replies[call.index]) for call in ending)
        ending = [call for call in ending if len(replies[call.index]) == most]
    named = [call for call in ending or calls if _has_id(call, response.get("id"))]
    candidates = named or ending
    return max(candidates, key=lambda call: (tokens_of(call) is not None, call.index), default=None)


def _said(items: list[Item]) -> list[Key]:
    """What the model said in these items, reasoning aside, which agents may drop; spaces around a text do not count."""
    found: list[Key] = []
    for item in items:
        if is_own(item) and item.get("type") != "reasoning":
            key = tuple(text.strip() for text in key_of(item) or ())
            if any(key[1:]):
                found.append(key)
    return found


def _ends_with(answer: list[Key], reply: list[Key]) -> bool:
    return bool(reply) and answer[-len(reply) :] == reply


def _has_id(call: ModelCall, wanted: Any) -> bool:
    return wanted is not None and call.response is not None and call.response.get("id") == wanted
