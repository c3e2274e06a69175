"""Flat rows and episodes, each told as the other: what `/run` took and answered before there were episodes.

A flat row holds the task's fields, `responses_create_params` and, as `_ng_*` keys, which rollout it is; its answer is the verified
row, or one that says of itself that it failed. Invariant: a name that one form has is the other's too.
"""

import uuid
from collections.abc import Mapping
from typing import Any, cast

from gym.protocol.environments import SingleAgentTurnTaskInput
from gym.protocol.ids import EpisodeId, TaskId
from gym.protocol.rollouts import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_KIND,
    FAILURE_MESSAGE,
    FAILURE_PARTIAL_RESPONSE,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    TASK_ID,
    TASK_INDEX,
)
from gym.tasks.materialize import check_materialized, is_materialized, materialize_task

_FAILURE_KEYS = {
    "failure_kind": FAILURE_KIND,
    "stage": FAILURE_STAGE,
    "terminal": FAILURE_TERMINAL,
    "failure_reason": FAILURE_MESSAGE,
    "partial_response": FAILURE_PARTIAL_RESPONSE,
}


def is_episode(body: object) -> bool:
    """Whether the body of a `/run` is an episode, and no flat row."""
    return isinstance(body, Mapping) and isinstance(cast("Mapping[str, Any]", body).get("episode_id"), Mapping)


def episode_of_row(row: Mapping[str, Any], *, taskset: str) -> dict[str, Any]:
    """The body of an episode's `/run`; a row that names no rollout is one of its own. Raises TaskError for a row that is no task."""
    if is_materialized(row):
        task = check_materialized(row)
    else:
        index, named = row.get(TASK_INDEX), row.get(TASK_ID)
        known = 0 if named is not None else index if isinstance(index, int) else None
        task = materialize_task(row, taskset=taskset, task_index=known)
        if named is not None:
            task["task_id"] = named
    indices = (row.get(TASK_INDEX), row.get(ROLLOUT_INDEX))
    derived = uuid.uuid4().hex if None in indices else "{}-{}".format(*indices)
    rollout_id = derived if row.get(ROLLOUT_ID) is None else row[ROLLOUT_ID]
    return {"episode_id": {"rollout_id": rollout_id, "attempt": row.get(ATTEMPT_INDEX) or 0}, "task": task}


def row_of_episode(episode_id: EpisodeId, task_id: TaskId, task: SingleAgentTurnTaskInput) -> dict[str, Any]:
    """The flat row of an episode."""
    fields = task.model_dump(mode="json", exclude_unset=True)
    data: dict[str, Any] = fields.pop("task_data", {})
    names = {ROLLOUT_ID: episode_id.rollout_id, ATTEMPT_INDEX: episode_id.attempt, TASK_ID: task_id.model_dump()}
    return {**data, **fields, **names}


def row_of_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The flat row of an episode's answer: its result, or its failure."""
    result: dict[str, Any] | None = answer.get("result")
    if result is not None:
        return dict(result)
    failure: dict[str, Any] = answer["failure"]
    return {FAILURE_CLASS: "environment_server_failed", **{_FAILURE_KEYS.get(key, key): value for key, value in failure.items()}}
