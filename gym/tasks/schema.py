"""Checking a task against its server's row schema: `TaskData` in the implementation's `task_data.py`.

The schema is a pydantic model (or anything that `TypeAdapter` takes) in a light module beside
`app.py`. It is loaded from its file, so that no server's app is imported.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from gym.config.errors import UserError
from gym.tasks.materialize import TaskError

FILE_NAME = "task_data.py"
_PROTOCOL_KEYS = ("responses_create_params", "agent_timeout_seconds")
_NESTED_KEYS = ("task_data", "verifier_metadata")
_MAX_SHOWN = 3


class SchemaError(UserError):
    """A `task_data.py` that cannot be used; the message is for the user."""


class TaskSchema:
    """The row schema of one implementation."""

    def __init__(self, schema: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(schema)
        model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
        self._declared = set[str](model.model_fields) if model else set[str]()

    def check(self, task_input: Mapping[str, Any]) -> None:
        """Raise TaskError, naming up to three fields, if the task's data does not fit."""
        try:
            self._adapter.validate_python(task_fields(task_input, keep=self._declared))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            shown = [f"{'.'.join(map(str, item['loc'])) or 'task data'}: {item['msg']}" for item in problems[:_MAX_SHOWN]]
            more = f" (and {len(problems) - _MAX_SHOWN} more)" if len(problems) > _MAX_SHOWN else ""
            raise TaskError(f"the task data does not fit the server's schema: {'; '.join(shown)}{more}") from None


def task_fields(task_input: Mapping[str, Any], *, keep: set[str]) -> dict[str, Any]:
    """The benchmark's own fields, flat: what a `TaskData` describes.

    `task_data` and `verifier_metadata` are spliced in unless the schema declares them itself
    (`keep`); a field that stands in two places with different values raises TaskError.
    """
    nested = [key for key in _NESTED_KEYS if key not in keep and isinstance(task_input.get(key), Mapping)]
    fields = {key: value for key, value in task_input.items() if key not in _PROTOCOL_KEYS and key not in nested}
    for outer in nested:
        for key, value in cast(Mapping[str, Any], task_input[outer]).items():
            if key in fields and fields[key] != value:
                raise TaskError(f"{key!r} stands both in {outer} and beside it, with different values")
            fields[key] = value
    return fields


def load_schema(directory: Path) -> TaskSchema | None:
    """The row schema of the implementation in `directory`, or None if it has none. Raises SchemaError."""
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    name = f"_gym_task_data_{directory.parent.name}_{directory.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SchemaError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks the module up to resolve postponed annotations
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a server author's code: whatever it raises is a finding about that file
        del sys.modules[name]
        raise SchemaError(f"{path} cannot be imported: {type(error).__name__}: {_first_line(error)}") from error
    schema = getattr(module, "TaskData", None)
    if schema is None:
        raise SchemaError(f"{path} defines no TaskData")
    try:
        return TaskSchema(schema)
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        reason = _first_line(error)
        raise SchemaError(f"{path}: TaskData is no schema of rows: {reason[:1].lower()}{reason[1:]}; make it a pydantic model") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")
