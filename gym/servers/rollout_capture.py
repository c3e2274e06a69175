"""One episode's record of model calls, as its environment server sees it: closed after the agent.

A record begins with its first call. It is opened by hand only where something may stand under its key already, since that is one
more request for each episode.

Invariant: this never fails an episode. What cannot be learned is a gap in the report, and where tokens were asked for, the
rollout is masked.
"""

from collections import OrderedDict
from typing import Any

from gym.client import CallError
from gym.models.capture.recorder import RECEIPTS
from gym.models.capture.report import NO_RECORDS, UNREADABLE, Report, empty_report
from gym.protocol import routes
from gym.protocol.failures import EpisodeFailure
from gym.protocol.ids import EpisodeId
from gym.protocol.rollouts import MODEL_CALLS, TOKEN_CAPTURE
from gym.servers.context import PeerInfo, ServerContext
from gym.servers.unserved import unserved

CLOSE_SECONDS = 5.0
"""How long a model server may take to open or close a record."""

_NO_TRAINING: dict[str, Any] = {"items": None, "report": {}, "masked_reason": "capture_incomplete"}


class UsedKeys:
    """The capture keys that one environment server has used of late; a model server remembers no more closed ones than that."""

    def __init__(self, *, unsure: bool) -> None:
        """`unsure`: a predecessor may have used any."""
        self._unsure, self._used = unsure, OrderedDict[str, None]()

    def use(self, key: str) -> bool:
        """Whether the key may have been used before; from now on it was."""
        used = self._unsure or key in self._used
        self._used[key] = None
        self._used.move_to_end(key)
        if len(self._used) > RECEIPTS:
            self._used.popitem(last=False)
        return used


class RolloutCapture:
    """The record of what one agent asks of its model during one episode; `session_id` is the agent session's."""

    def __init__(self, context: ServerContext, agent: PeerInfo, episode: EpisodeId, session_id: str, used: UsedKeys) -> None:
        self.report: Report | None = None
        """Once it is closed; None for an agent without a model."""
        self.prefix = routes.rollout_prefix(episode.capture_key, token_capture=agent.token_capture)
        self._agent, self._key, self._session_id, self._keep = agent, episode.capture_key, session_id, context.keep_captures
        info = context.peers.get(agent.model_server or "")
        self._model = None if info is None else context.peer(info.name, episode)
        self._used = used
        self._elsewhere = agent.remote or (info is not None and info.remote)
        """Who makes or records the calls is not of this run, and need not know of records."""

    async def open(self) -> None:
        """Begin the record, without what an earlier episode may have left under the same key."""
        if self._used.use(self._key) and self._model is not None:
            try:
                await self._model.post(routes.OPEN_CAPTURE, {"session_id": self._session_id}, timeout=CLOSE_SECONDS, prefix=self.prefix)
            except CallError:
                return  # whoever is not there now is not there later, and the close says so

    async def close(self, response: dict[str, Any] | None) -> None:
        """End the record; `response` is the agent's, as far as it came. The first report stands."""
        if self.report is not None:
            return
        if self._model is None:
            if self._elsewhere:
                self.report = empty_report(self._key, None, NO_RECORDS, f"{self._agent.name} runs elsewhere, and so do its model calls")
            return
        body: dict[str, Any] = {"session_id": self._session_id, "keep": self._keep}
        if self._agent.token_capture:
            body["response"] = response
        try:
            reply = await self._model.post(routes.CLOSE_CAPTURE, body, timeout=CLOSE_SECONDS, prefix=self.prefix)
            report = reply.json()
            if not isinstance(report, dict) or "gaps" not in report:
                raise ValueError("it answered with no report")
            self.report = report
        except (CallError, ValueError) as error:
            code = NO_RECORDS if self._elsewhere else UNREADABLE
            self.report = empty_report(self._key, self._model.name, code, str(error))

    def complete(self, result: dict[str, Any]) -> dict[str, Any]:
        """A verified result with what the record says; tokens that were asked for replace the output, or mask the result."""
        result = {key: value for key, value in result.items() if key not in (MODEL_CALLS, TOKEN_CAPTURE)}
        if self.report is not None:
            result[MODEL_CALLS] = self.row
        if not self._agent.token_capture:
            return result
        training: dict[str, Any] = (self.report or {}).get("training") or _NO_TRAINING
        if training["items"] is not None:
            result["response"] = {**(result.get("response") or {}), "output": training["items"]}
        result[TOKEN_CAPTURE] = {**training["report"], "masked_reason": training["masked_reason"]}
        mask_without_tokens(result)
        return result

    @property
    def row(self) -> Report | None:
        """The report as it stands in a row: what has a place of its own there is left out."""
        return self.report and {key: value for key, value in self.report.items() if key not in ("training", "usage")}

    @property
    def usage(self) -> dict[str, Any] | None:
        """What the answered calls used, as far as they said."""
        return self.report and self.report["usage"]

    @property
    def failed(self) -> str | None:
        """What to say where the model's calls failed one after the other until no more were let through."""
        if self.report is None or "failed" not in self.report:
            return None
        return f"{self.report['model_server']}: {self.report['failed']}"

    def unserved(self, began: float, ended: float) -> EpisodeFailure | None:
        """Why the time-out of an agent that worked from `began` to `ended` (seconds since the epoch) measures nothing, if it does not."""
        return None if self.report is None or self._elsewhere else unserved(self.report, began, ended)

    @property
    def budget_exhausted(self) -> bool:
        """Whether the agent was refused a call for a budget of the model server."""
        return self.report is not None and "budget_exhausted" in self.report


def mask_without_tokens(result: dict[str, Any]) -> None:
    """Mask a result of which the tokens were asked for and are not known, whatever the verdict."""
    capture: dict[str, Any] = result.get(TOKEN_CAPTURE) or {}
    masked = capture.get("masked_reason")
    if masked is not None and not result.get("mask_sample"):
        result |= {"mask_sample": True, "failure_kind": "token_capture_failed", "failure_reason": f"no tokens to train on: {masked}"}
