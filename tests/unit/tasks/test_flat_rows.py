"""Flat rows and episodes say the same."""

from typing import Any

import pytest

from gym.protocol.environments import EpisodeRequest, SingleAgentTurnTaskInput
from gym.protocol.ids import EpisodeId
from gym.tasks.flat_rows import episode_of_row, is_episode, row_of_answer, row_of_episode
from gym.tasks.materialize import TaskError

ROW: dict[str, Any] = {
    "instance_id": "i-1",
    "responses_create_params": {"input": "go", "temperature": 0.5},
    "patch": "the answer",
    "agent_ref": {"type": "responses_api_agents", "name": "a"},
}


def parsed(body: dict[str, Any]) -> EpisodeRequest[SingleAgentTurnTaskInput]:
    return EpisodeRequest[SingleAgentTurnTaskInput].model_validate(body)


@pytest.mark.parametrize(
    ("names", "rollout_id", "attempt"),
    [
        ({"_ng_rollout_id": "mine", "_ng_task_index": 4, "_ng_rollout_index": 1}, "mine", 0),
        ({"_ng_task_index": 4, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "4-1", 2),
        ({"_ng_rollout_id": None, "_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": None}, "0-0", 0),
    ],
)
def test_a_row_becomes_an_episode(names: dict[str, Any], rollout_id: str, attempt: int) -> None:
    body = episode_of_row({**ROW, **names}, taskset="swe")
    assert is_episode(body)
    assert not is_episode({**ROW, **names})
    request = parsed(body)
    assert request.episode_id == EpisodeId(rollout_id=rollout_id, attempt=attempt)
    assert request.task.task_id.model_dump() == {"taskset": "swe", "task_id": "i-1"}
    assert request.task.task_input.task_data == {"instance_id": "i-1", "patch": "the answer"}
    assert request.task.task_input.responses_create_params.model_dump(exclude_unset=True) == ROW["responses_create_params"]


def test_rows_that_name_no_rollout_are_rollouts_of_their_own() -> None:
    names = {episode_of_row(ROW, taskset="swe")["episode_id"]["rollout_id"] for _ in range(3)}
    assert len(names) == 3
    for name in names:
        EpisodeId(rollout_id=name)


def test_a_row_without_a_name_takes_its_index_or_is_refused() -> None:
    row = {"responses_create_params": {"input": "go"}}
    assert episode_of_row({**row, "_ng_task_index": 7}, taskset="t")["task"]["task_id"] == {"taskset": "t", "task_id": "7"}
    with pytest.raises(TaskError, match="no index to be named by"):
        episode_of_row(row, taskset="t")


def test_a_materialized_row_keeps_its_task() -> None:
    task = {"task_id": {"taskset": "other", "task_id": "x"}, "task_input": {"responses_create_params": {"input": "go"}}}
    assert episode_of_row({**task, "_ng_rollout_id": "r"}, taskset="t") == {"episode_id": {"rollout_id": "r", "attempt": 0}, "task": task}


def test_an_episode_survives_the_way_through_a_row() -> None:
    body = {
        "episode_id": {"rollout_id": "r", "attempt": 3},
        "task": {
            "task_id": {"taskset": "swe:verified", "task_id": "17"},
            "task_input": {
                "responses_create_params": {"input": "go", "top_p": 1},
                "task_data": {"patch": "p"},
                "agent_timeout_seconds": 5.0,
            },
        },
    }
    request = parsed(body)
    row = row_of_episode(request.episode_id, request.task.task_id, request.task.task_input)
    assert row["patch"] == "p"
    assert row["responses_create_params"] == {"input": "go", "top_p": 1}
    assert parsed(episode_of_row(row, taskset="a default")) == request


def test_an_answer_becomes_a_row() -> None:
    assert row_of_answer({"result": {"reward": 0.0, "x": 1}}) == {"reward": 0.0, "x": 1}
    failure = {"failure_reason": "it broke", "terminal": True, "failure_kind": "agent_run_error", "stage": "agent"}
    row = row_of_answer({"failure": {**failure, "partial_response": {"id": "r"}, "ng_model_call_capture": {"calls": []}}})
    assert row == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_kind": "agent_run_error",
        "_ng_failure_stage": "agent",
        "_ng_failure_terminal": True,
        "_ng_failure_message": "it broke",
        "_ng_failure_partial_response": {"id": "r"},
        "ng_model_call_capture": {"calls": []},
    }
