"""The output of an earlier run as the input of another: its rows, and the tasks that they are rollouts of.

Reads and changes nothing. Memory: 32 bytes for each task of the earlier run; rows and tasks stay on disk, and are read by their place.
"""

import os
from array import array
from pathlib import Path
from typing import Any, cast

import orjson

from gym.config.errors import UserError
from gym.protocol.rollouts import ROLLOUT_ID
from gym.rollouts.files import OutputFiles
from gym.rollouts.lines import LineTable
from gym.rollouts.lock import refuse_locked
from gym.tasks.materialize import Materialized, TaskError


class EarlierRun:
    """What a run left at `output`."""

    def __init__(self, output: Path) -> None:
        self.files = OutputFiles(output)

    def check(self) -> None:
        """Raise UserError if there are no rollouts and tasks to read, or a collector is writing them."""
        for path, what in ((self.files.output, "rollouts"), (self.files.materialized, "tasks that the rollouts are of")):
            if not path.is_file():
                raise UserError(
                    f"{path} is not there, and with it the {what}: name the output of a run, with the run's other files beside it"
                )
            if not os.access(path, os.R_OK):
                raise UserError(f"{path} cannot be read: check its permissions")
        refuse_locked(self.files.lock)

    def all_files(self) -> list[Path]:
        """Every file of the run that is there."""
        return [path for path in self.files.results if path.is_file()]

    def without_row(self) -> int:
        """How many rollouts of the run ended without a row, as far as its account tells."""
        try:
            account = orjson.loads(self.files.coverage.read_bytes())
            return int(account["failed"]) + int(account["owed"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0


class Tasks:
    """The tasks of a run, by rollout id."""

    def __init__(self, path: Path) -> None:
        """Read which there are. Raises UserError."""
        self._path = path
        self._file = path.open("rb")
        self._table = LineTable(sum(1 for _ in self._file))
        self._offsets = array("Q", [0])
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            try:
                self._table.add(orjson.loads(line)[ROLLOUT_ID])
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path}:{number}: no task of a run: put the file back as the run wrote it") from None
            self._offsets.append(self._offsets[-1] + len(line))

    def of(self, rollout_id: str) -> Materialized:
        """The task of a rollout. Raises TaskError if there is none."""
        number = self._table.line(rollout_id)
        task = self._read(number) if number is not None else {}
        if number is None or task.get(ROLLOUT_ID) != rollout_id:
            raise TaskError(f"rollout {rollout_id!r} has no task in {self._path}")
        return {"task_id": task["task_id"], "task_input": task["task_input"]}

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _read(self, number: int) -> dict[str, Any]:
        start, end = self._offsets[number], self._offsets[number + 1]
        return cast("dict[str, Any]", orjson.loads(os.pread(self._file.fileno(), end - start, start)))
