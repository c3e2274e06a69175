"""Row schemas of implementations."""

from pathlib import Path

import pytest

from gym.tasks.materialize import TaskError
from gym.tasks.schema import SchemaError, load_schema

_SOURCE = """
from __future__ import annotations
from pydantic import BaseModel, ConfigDict

class Inner(BaseModel):
    unit: str

class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")
    answer: int
    inner: Inner | None = None
"""


def _implementation(folder: Path, source: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "task_data.py").write_text(source)
    return folder


def test_fields_may_stand_flat_or_nested(tmp_path: Path) -> None:
    schema = load_schema(_implementation(tmp_path / "resources_servers" / "a", _SOURCE))
    assert schema is not None
    schema.check({"responses_create_params": {"input": "q"}, "answer": 1, "more": 2})
    schema.check({"task_data": {"answer": 1}})
    schema.check({"verifier_metadata": {"answer": 1, "inner": {"unit": "m"}}})
    schema.check({"answer": 1, "task_data": {"answer": 1}})
    with pytest.raises(TaskError, match="different values"):
        schema.check({"answer": 1, "task_data": {"answer": 2}})
    with pytest.raises(TaskError, match="answer: "):
        schema.check({"task_data": {"answer": "many"}})
    with pytest.raises(TaskError, match=r"inner\.unit"):
        schema.check({"answer": 1, "inner": {}})


def test_without_a_schema_and_with_a_broken_one(tmp_path: Path) -> None:
    assert load_schema(tmp_path) is None
    with pytest.raises(SchemaError, match="defines no TaskData"):
        load_schema(_implementation(tmp_path / "k" / "none", "x = 1\n"))
    with pytest.raises(SchemaError, match="ZeroDivisionError"):
        load_schema(_implementation(tmp_path / "k" / "broken", "1 / 0\n"))
    with pytest.raises(SchemaError, match="SystemExit: 3"):
        load_schema(_implementation(tmp_path / "k" / "leaving", "raise SystemExit(3)\n"))
    with pytest.raises(SchemaError, match="is no schema of rows") as caught:
        load_schema(_implementation(tmp_path / "k" / "number", "TaskData = 3\n"))
    assert "\n" not in str(caught.value)
