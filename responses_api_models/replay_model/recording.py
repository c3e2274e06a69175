"""One recorded rollout while it is played: which of its calls answers a request.

A rollout whose calls never ran side by side is played in the order in which it was recorded. Where calls did, their
order was chance, and each may come whenever its request does. Invariant: a request is answered by a call that was recorded
for an equal one, or not at all; asked once more it gets the same reply, and those to come stay where they are.
"""

from itertools import pairwise
from typing import Any

from gym.models.calls import Dialect, ModelCall
from gym.models.capture.records import Capture
from gym.models.dialects.fields import Fields, fields_of, list_of
from gym.protocol.errors import ContractError
from gym.protocol.failures import BUDGET_EXHAUSTED
from responses_api_models.replay_model.differences import Difference, comparable, differences, told

DIFFERS = "replay_model:request_differs"
"""Failure kind: the agent asks for something else than was recorded."""


class Recording:
    """A rollout that is played from its first call on; `name` is its file's."""

    def __init__(self, name: str, capture: Capture) -> None:
        self._name, self._refused = name, capture.refused
        self._given = {str(item.get("id")) for call in capture.calls for item in _output(call)}
        calls = [(call, comparable(call.dialect, call.request, self._given)) for call in capture.calls]
        # Whoever got no reply, and asked again, is answered at once.
        self._calls = [(call, asked) for call, asked in calls if _replied(call) or not any(_repeats(other, call) for other, _ in calls)]
        self._in_order = all(_end(first) <= second.started_at for (first, _), (second, _) in pairwise(self._calls))
        self._played = set[int]()

    @property
    def counts(self) -> dict[str, int]:
        """How many calls there are, and how many were asked for."""
        return {"calls_recorded": len(self._calls), "calls_played": len(self._played)}

    def call_for(self, dialect: Dialect, body: Fields) -> ModelCall:
        """The call whose reply answers a request. Raises ContractError, terminal, if there is none."""
        asked = (dialect, comparable(dialect, body, self._given))
        left = [(call, request) for call, request in self._calls if call.index not in self._played]
        expected = left[:1] if self._in_order else left
        played = [(call, request) for call, request in reversed(self._calls) if call.index in self._played]
        found = next((call for call, request in (*expected, *played) if (call.dialect, request) == asked), None)
        if found is None:
            raise self._exceeded() if not expected else self._differs(expected, *asked)
        if not _replied(found):
            why = f"{found.error_category}: {found.error}" if found.error_category else "its server died before it had one"
            raise ContractError(409, f"call {found.index} of {self._name} has no reply to play: {why}", kind=DIFFERS, terminal=True)
        self._played.add(found.index)
        return found

    def _exceeded(self) -> ContractError:
        if self._refused is not None:
            reason = f"the rollout was refused more calls when it was recorded: it had used up {self._refused}"
            return ContractError(400, reason, kind=BUDGET_EXHAUSTED, terminal=True)
        reason = f"the agent makes more calls than {self._name} holds, which are {len(self._calls)}, and all of them were played"
        return ContractError(409, reason, kind=DIFFERS, terminal=True)

    def _differs(self, expected: list[tuple[ModelCall, Fields]], dialect: Dialect, got: Fields) -> ContractError:
        """What to say of a request, by the expected call that is nearest to it."""

        def from_call(call: ModelCall, request: Fields) -> list[Difference]:
            other = [] if call.dialect == dialect else [Difference("dialect", call.dialect, dialect)]
            return [*other, *differences(request, got)]

        found = [(call, from_call(call, request)) for call, request in expected]
        nearest, all_of_it = min(found, key=lambda pair: len(pair[1]))
        reason = f"the request differs from call {nearest.index} of {self._name}: {told(all_of_it)}"
        return ContractError(409, reason, kind=DIFFERS, terminal=True)


def _replied(call: ModelCall) -> bool:
    """Whether there is something to play: a reply, an error, or how far a stream came before it broke off."""
    if call.status is None or call.error_category == "cancelled":
        return False
    return call.response is not None or call.streamed or not call.complete


def _repeats(later: ModelCall, call: ModelCall) -> bool:
    return later.index > call.index and later.dialect == call.dialect and later.request == call.request


def _end(call: ModelCall) -> float:
    return call.started_at + (call.latency_ms or 0.0) / 1000


def _output(call: ModelCall) -> list[dict[str, Any]]:
    return [fields_of(item) for item in list_of(fields_of(call.response).get("output"))]
