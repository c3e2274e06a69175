"""The form of each SWE data set: which example tasks it has, what their images hold besides the repository, and how a row looks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from task_builder.images import Image
from task_builder.task import Task, load

REPOSITORY = Path(__file__).resolve().parents[3]
PYTHON_TASKS = ("calc", "spans", "notes", "ttlcache", "tables")


@dataclass(frozen=True)
class DataSet:
    """One data set."""

    name: str
    file: str
    """Its example rows, relative to the clone."""
    task_names: tuple[str, ...]
    image: Callable[[Task], Image]
    row: Callable[[Task], dict[str, Any]]

    @property
    def path(self) -> Path:
        """Its example rows."""
        return REPOSITORY / self.file

    @property
    def tasks(self) -> list[Task]:
        """Its tasks, in the order of the rows."""
        return [load(name) for name in self.task_names]

    def rows(self) -> list[dict[str, Any]]:
        """Its rows, each with what an agent is told."""
        return [{"responses_create_params": task.prompt(self.image(task).workdir), **self.row(task)} for task in self.tasks]
