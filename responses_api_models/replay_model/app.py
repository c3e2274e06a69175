"""A model without a model: it plays captured rollouts back, strictly.

A rollout is known by its capture key. Its calls come from its file, the requests must be those that were recorded, and
whatever differs is a terminal error that says where. Left out: when a reply came; it is sent at once.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, cast

from gym.models.calls import Dialect
from gym.models.capture.report import Report
from gym.protocol.errors import ContractError
from gym.servers import ModelServer, ServerContext
from gym.servers.http import Call
from responses_api_models.replay_model.captures import Captures
from responses_api_models.replay_model.config import Config
from responses_api_models.replay_model.playback import answer_of
from responses_api_models.replay_model.recording import Recording

_ROLLOUTS = 4096
"""How many rollouts that nobody closes are kept in mind."""


@dataclass
class _Playing:
    """A rollout; its recording is read with the first call."""

    recording: Recording | None = None
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class ReplayModel(ModelServer):
    """The policy model of a run that was made before."""

    config: Config

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        self._captures = Captures(config.captures)
        self._playing = OrderedDict[str, _Playing]()

    async def models(self, call: Call) -> Any:
        """The one model there is."""
        return {"object": "list", "data": [{"id": "replay", "object": "model", "owned_by": "gym"}]}

    def rollout_closed(self, capture_key: str, report: Report) -> None:
        """Let go of the rollout, and say how much of it was asked for."""
        playing = self._playing.pop(capture_key, None)
        if playing is not None and playing.recording is not None:
            report["replay"] = playing.recording.counts

    async def answer(self, call: Call, dialect: Dialect) -> Any:
        """Play the reply that was recorded for the request."""
        recorded = (await self._recording(call)).call_for(dialect, cast("dict[str, Any]", call.json()))
        call.notes.tokens = recorded.notes.tokens
        return answer_of(recorded)

    async def _recording(self, call: Call) -> Recording:
        """The recording that this call's rollout plays; the first call of a rollout begins it anew."""
        key = call.capture_key
        if key is None:
            reason = f"{call.path} names no rollout: {self.context.instance} plays rollouts back, below /ng-rollout/<capture key>"
            raise ContractError(409, reason, kind="replay_model:unknown_rollout", terminal=True)
        if call.index == 0 or key not in self._playing:
            self._playing[key] = _Playing()
            if len(self._playing) > _ROLLOUTS:
                self._playing.popitem(last=False)
        self._playing.move_to_end(key)
        playing = self._playing[key]
        async with playing.reading:
            if playing.recording is None:
                playing.recording = Recording(*await asyncio.to_thread(self._captures.read, key))
        return playing.recording
