"""Naming tasks, per the wire contract."""

from typing import Any

import pytest

from gym.tasks.materialize import TaskError, check_materialized, is_materialized, materialize_task


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"task_id": "t", "problem_id": "p", "instance_id": "i"}, "t"),
        ({"problem_id": "p", "instance_id": "i"}, "p"),
        ({"task_id": None, "problem_id": "", "instance_id": "i"}, "i"),
        ({"task_id": 0}, "0"),
        ({"x": 1}, "7"),
    ],
)
def test_the_first_name_that_is_set(row: dict[str, Any], name: str) -> None:
    assert materialize_task(row, taskset="s", task_index=7)["task_id"] == {"taskset": "s", "task_id": name}


def test_what_belongs_to_the_run_is_dropped_and_all_else_kept() -> None:
    row = {
        "instance_id": "i",
        "agent_ref": {"name": "a"},
        "task_source": "s",
        "skills_ref": {},
        "_ng_task_index": 3,
        "_ng_anything": 1,
        "responses_create_params": {"input": "q"},
        "answer": 4,
    }
    task = materialize_task(row, taskset="s")
    assert task["task_input"] == {"instance_id": "i", "responses_create_params": {"input": "q"}, "answer": 4}


def test_refusals() -> None:
    task = materialize_task({"task_id": "t"}, taskset="s")
    with pytest.raises(TaskError, match="materialized already"):
        materialize_task(task, taskset="s")
    with pytest.raises(TaskError, match="no index"):
        materialize_task({}, taskset="s")
    with pytest.raises(TaskError, match="neither flat nor materialized"):
        materialize_task({"task_id": {"taskset": "s", "task_id": "t"}}, taskset="s")
    with pytest.raises(TaskError, match="string or a whole number"):
        materialize_task({"task_id": [1]}, taskset="s", task_index=0)
    with pytest.raises(TaskError, match="string or a whole number"):
        materialize_task({"task_id": True}, taskset="s", task_index=0)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"task_id": {}, "task_input": {}}, "task_id.taskset is missing"),
        ({"task_id": {"taskset": "s"}, "task_input": {}}, "task_id.task_id is missing"),
        ({"task_id": {"taskset": "s", "task_id": 3}, "task_input": {}}, "must be a string"),
        ({"task_id": {"taskset": "", "task_id": "t"}, "task_input": {}}, "must be a string"),
        ({"task_id": {"taskset": "s", "task_id": "t", "x": 1}, "task_input": {}}, "unknown keys x"),
        ({"task_id": {"taskset": "s", "task_id": "t"}, "task_input": None}, "must be an object"),
        ({"task_id": {"taskset": "s", "task_id": "t"}, "task_input": {}, "answer": 1}, "unknown keys answer"),
    ],
)
def test_a_malformed_materialized_row_fails_as_such(row: dict[str, Any], says: str) -> None:
    assert is_materialized(row)
    with pytest.raises(TaskError, match="malformed materialized task") as caught:
        check_materialized(row)
    assert says in str(caught.value)


def test_a_materialized_row_keeps_only_its_task() -> None:
    row = {"task_id": {"taskset": "s", "task_id": "t"}, "task_input": {"a": 1}, "_ng_rollout_id": "x", "agent_ref": {}}
    assert check_materialized(row) == {"task_id": {"taskset": "s", "task_id": "t"}, "task_input": {"a": 1}}
