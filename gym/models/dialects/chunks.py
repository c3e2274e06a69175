"""What a stream of Chat Completions chunks says, whichever dialect it is turned into.

Only the first choice is read. Tool calls are told apart by their index; where an endpoint gives none, an
id begins a new one.
"""

from dataclasses import dataclass, field
from typing import Any

from gym.models.dialects.fields import fields_of, list_of
from gym.models.dialects.from_chat import call_id_at
from gym.models.dialects.items import Body


@dataclass(slots=True)
class GrowingCall:
    """A tool call as it grows."""

    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    place: int | None = None
    """Its output index, or the index of its block, once it has begun."""


class ChunkReader:
    """Reads the chunks of one stream, in order."""

    def __init__(self) -> None:
        self.base = ""
        self.calls: dict[int, GrowingCall] = {}
        self.finish_reason: str | None = None
        self.stopped_at: Any = None
        self.usage: Any = None
        self.ended = False

    def choice_of(self, chunk: Body) -> Body:
        """The chunk's choice; its other fields are noted."""
        if chunk.get("usage"):
            self.usage = chunk["usage"]
        choices = list_of(chunk.get("choices"))
        choice = fields_of(choices[0]) if choices else {}
        if choice.get("finish_reason"):
            self.finish_reason = choice["finish_reason"]
            self.stopped_at = choice.get("stop_reason")
        return choice

    def call_of(self, delta: Body) -> tuple[GrowingCall, str]:
        """The call that a delta adds to, and the arguments that it adds."""
        index = delta.get("index")
        if not isinstance(index, int):
            index = len(self.calls) if delta.get("id") or not self.calls else max(self.calls)
        call = self.calls.setdefault(index, GrowingCall())
        function = fields_of(delta.get("function"))
        call.call_id = call.call_id or delta.get("id") or ""
        call.name = call.name or function.get("name") or ""
        added: str = function.get("arguments") or ""
        if added:
            call.pieces.append(added)
        return call, added

    def name_calls(self) -> None:
        """Give ids to the calls that got none."""
        for position, call in enumerate(self.calls.values()):
            call.call_id = call.call_id or call_id_at(self.base, position)
