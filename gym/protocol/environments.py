"""The environment server's wire: one episode in, a result or a failure out."""

from typing import Any, Generic, Self, TypeVar, cast

from pydantic import Field, model_validator

from gym.protocol.base import OpenReply, WireReply, WireRequest
from gym.protocol.failures import EpisodeFailure
from gym.protocol.ids import EpisodeId, TaskId
from gym.protocol.responses import Response, ResponseCreateParams

TaskInput = TypeVar("TaskInput")


class MaterializedTask(WireRequest, Generic[TaskInput]):
    """A task with its durable name."""

    task_id: TaskId
    task_input: TaskInput


class EpisodeRequest(WireRequest, Generic[TaskInput]):
    """`POST /run`."""

    episode_id: EpisodeId
    task: MaterializedTask[TaskInput]


class EpisodeResponse(WireReply):
    """The answer to `/run`: identities echoed, and exactly one of `result` and `failure`."""

    episode_id: EpisodeId
    task_id: TaskId
    result: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.result is None) == (self.failure is None):
            raise ValueError("an episode ends with exactly one of 'result' and 'failure'")
        return self


class SingleAgentTurnTaskInput(WireRequest):
    """What a single-agent task is made of. `task_data` goes to the resources server only."""

    responses_create_params: ResponseCreateParams
    task_data: dict[str, Any] = Field(default_factory=dict)
    agent_timeout_seconds: float | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _fold_flat_fields(cls, value: Any) -> Any:
        """Move flat extra fields into `task_data`; one that stands in both with different values is an error."""
        if not isinstance(value, dict):
            return value
        row = cast(dict[str, Any], value)
        known = cls.model_fields.keys()
        extra = {key: item for key, item in row.items() if key not in known}
        if not extra:
            return row
        given: Any = row.get("task_data") or {}
        if not isinstance(given, dict):
            raise ValueError("task_data must be a mapping")
        data = cast(dict[str, Any], given)
        for key, item in extra.items():
            if key in data and data[key] != item:
                raise ValueError(f"{key!r} stands both in task_data and beside it, with different values")
        return {**{key: item for key, item in row.items() if key in known}, "task_data": {**data, **extra}}


class SingleAgentTurnResult(OpenReply):
    """The verify response of one turn, with what the agent reported."""

    responses_create_params: ResponseCreateParams
    response: Response
    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None
    ng_agent_observations: dict[str, Any] | None = None
    agent_timed_out: bool | None = None


class SingleAgentTurnFailure(EpisodeFailure):
    """A failed turn; what the agent had answered by then is kept."""

    partial_response: Response | None = None
