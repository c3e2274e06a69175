"""One rollout as the exporters see it, and why one is left out.

Owns what a row must have to be a rollout at all; what a form asks beyond that its own module says.
"""

from dataclasses import dataclass
from typing import Any, cast

from gym.protocol import rollouts as keys
from gym.protocol.responses import Item


class Unusable(Exception):
    """A rollout that is left out. `reason` is the same for all that share it."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason if detail is None else f"{reason} ({detail})")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Turn:
    """The tokens of one call."""

    item: int
    """Which output item carries them; it is the last of the call's."""
    added: list[int]
    """What its prompt adds to the prompt and the generation of the call before."""
    generation: list[int]
    log_probs: list[float]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A row of `gym eval run`."""

    row: dict[str, Any]
    raw: bytes
    """The line itself."""
    lifted: list[Turn] | None
    """Its token ids, where they were taken out of the line before it was parsed."""

    @property
    def params(self) -> dict[str, Any]:
        """What the agent was asked."""
        return self.row["responses_create_params"]

    @property
    def input_items(self) -> list[Item]:
        """The prompt."""
        given = self.params["input"]
        return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given

    @property
    def response(self) -> dict[str, Any]:
        """What the agent answered."""
        return self.row["response"]

    @property
    def output(self) -> list[Item]:
        """The items of the answer."""
        return self.response["output"]

    @property
    def reward(self) -> float | None:
        """None for a rollout that was not verified."""
        return self.row.get("reward")

    @property
    def id(self) -> str:
        """The rollout's id and attempt, as they are written together elsewhere."""
        attempt = self.row.get(keys.ATTEMPT_INDEX)
        return f"{self.row.get(keys.ROLLOUT_ID, 'rollout')}" + (f"-a{attempt}" if attempt else "")

    @property
    def index(self) -> int:
        """Which of the rollouts of its task it is."""
        return self.row.get(keys.ROLLOUT_INDEX) or 0

    @property
    def taskset(self) -> str | None:
        """The set that its task comes from."""
        return self._task_id().get("taskset")

    @property
    def task_id(self) -> str | None:
        """Its task."""
        return self._task_id().get("task_id")

    @property
    def agent(self) -> str | None:
        """The agent instance that made it."""
        ref: dict[str, str] = self.row.get("agent_ref") or {}
        return ref.get("name")

    @property
    def masked(self) -> str | None:
        """Why it must not be trained on; None if it may."""
        if not self.row.get("mask_sample"):
            return None
        capture: Any = self.row.get(keys.TOKEN_CAPTURE) or {}
        return str(capture.get("masked_reason") or self.row.get("failure_kind") or "no reason given")

    def _task_id(self) -> dict[str, str]:
        return self.row.get(keys.TASK_ID) or {}


def what_is_missing(row: dict[str, Any]) -> str | None:
    """Why a row is no rollout; None if it is one."""
    params, response = row.get("responses_create_params"), row.get("response")
    if not isinstance(params, dict):
        return "it has no responses_create_params"
    if not isinstance(response, dict):
        return "it has no response"
    given: Any = cast(dict[str, Any], params).get("input")
    if not isinstance(given, str) and not _is_items(given):
        return "its responses_create_params.input is neither text nor a list of items"
    if not _is_items(cast(dict[str, Any], response).get("output")):
        return "its response.output is no list of items"
    reward: Any = row.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        return f"its reward is {reward!r}, not a number"
    for name, kind in ((keys.TASK_ID, dict), ("agent_ref", dict), (keys.TOKEN_CAPTURE, dict), (keys.ROLLOUT_INDEX, int)):
        if row.get(name) is not None and not isinstance(row[name], kind):
            return f"its {name} is {row[name]!r}"
    return None


def _is_items(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in cast(list[Any], value))
