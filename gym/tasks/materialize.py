"""Giving a row its durable name: a flat row becomes `{task_id: {taskset, task_id}, task_input}`.

Invariant: a materialized task has exactly these two keys, and nothing of the run (`_ng_*`,
`agent_ref`, …) in its input. The shape of `task_input` belongs to the environment server's
protocol and is not judged here.
"""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

ID_KEYS = ("task_id", "problem_id", "instance_id")
"""Where a flat row may carry its name; the first that is set counts."""

ROUTING_KEYS = ("agent_ref", "task_source", "skills_ref")
"""Keys of a row that say where it goes and not what it asks."""

RUN_PREFIX = "_ng_"


class TaskError(ValueError):
    """A row that is no task; the message says why, without the place."""


class TaskName(TypedDict):
    """A task's durable name, as it stands on the wire."""

    taskset: str
    task_id: str


class Materialized(TypedDict):
    """A task with its name, as it stands on the wire."""

    task_id: TaskName
    task_input: dict[str, Any]


def is_materialized(row: Mapping[str, Any]) -> bool:
    """Whether `row` must be taken as a materialized task, be it well-formed or not."""
    return isinstance(row.get("task_id"), Mapping) and "task_input" in row


def own_name(row: Mapping[str, Any]) -> str | None:
    """The name that a flat row carries, or None. Raises TaskError for one that cannot be a name."""
    for key in ID_KEYS:
        value = row.get(key)
        if value is None or value == "":
            continue
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, Mapping):
            raise TaskError(f"{key!r} is an object, but there is no 'task_input' beside it: the row is neither flat nor materialized")
        raise TaskError(f"{key!r} must be a string or a whole number, not {value!r}")
    return None


def materialize_task(row: Mapping[str, Any], *, taskset: str, task_index: int | None = None) -> Materialized:
    """Wrap a flat row; `task_index` names it if it carries no name of its own.

    Raises TaskError for a row that is materialized already, and for one that is left without a name.
    """
    if is_materialized(row):
        raise TaskError("the row is materialized already")
    if not taskset:
        raise TaskError("the taskset has no name")
    name = own_name(row)
    if name is None:
        if task_index is None or task_index < 0:
            raise TaskError(f"the row has none of {', '.join(ID_KEYS)}, and no index to be named by")
        name = str(task_index)
    task_input = {key: value for key, value in row.items() if key not in ROUTING_KEYS and not key.startswith(RUN_PREFIX)}
    return {"task_id": {"taskset": taskset, "task_id": name}, "task_input": task_input}


def check_materialized(row: Mapping[str, Any]) -> Materialized:
    """The task in a row that `is_materialized`. Raises TaskError with what is wrong with it."""
    name = row["task_id"]
    extra = sorted(set(name) - {"taskset", "task_id"})
    if extra:
        raise TaskError(f"malformed materialized task: task_id has unknown keys {', '.join(map(str, extra))}")
    for key in ("taskset", "task_id"):
        if key not in name:
            raise TaskError(f"malformed materialized task: task_id.{key} is missing")
        value = name[key]
        if not isinstance(value, str) or not value:
            raise TaskError(f"malformed materialized task: task_id.{key} must be a string that is not empty, not {value!r}")
    task_input = row["task_input"]
    if not isinstance(task_input, dict):
        raise TaskError(f"malformed materialized task: task_input must be an object, not {type(task_input).__name__}")
    known = {"task_id", "task_input", *ROUTING_KEYS}
    unknown = sorted(key for key in row if key not in known and not key.startswith(RUN_PREFIX))
    if unknown:
        raise TaskError(
            f"malformed materialized task: unknown keys {', '.join(unknown)} beside task_id and task_input: move them into task_input"
        )
    return {
        "task_id": {"taskset": name["taskset"], "task_id": name["task_id"]},
        "task_input": cast(dict[str, Any], task_input),
    }
