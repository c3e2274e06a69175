"""The files that an export writes: whole, or not at all.

Invariant: until an output is finished nothing stands at its place that was not there before; what
was begun is removed when it is not finished. Records are written as they come.
"""

import importlib
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, cast

from gym.config.errors import UserError
from gym.rollouts.files import sync_folder

_LONGEST_NAME = 150
_BATCH_TOKENS = 1 << 20
_BATCH_ROWS = 256
"""How much is kept in memory before it goes into a Parquet file; either."""


class Output(ABC):
    """What records go into. Made at a temporary place."""

    shape: ClassVar[str]
    """What stands there in the end, in words."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @abstractmethod
    def add(self, name: str, record: Any) -> None:
        """Write a record of a rollout of this name."""

    @abstractmethod
    def close(self, *, finished: bool) -> None:
        """Write what is left, if it is to be kept."""


class Lines(Output):
    """JSON Lines; a record is a line without its end."""

    shape = "a .jsonl file"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._file = place.open("wb")

    def add(self, name: str, record: bytes) -> None:
        """Write a line."""
        self._file.write(record)
        self._file.write(b"\n")

    def close(self, *, finished: bool) -> None:
        """Have it on the disk."""
        with self._file as file:
            if finished:
                file.flush()
                os.fsync(file.fileno())


class Documents(Output):
    """A folder with a JSON file for each rollout."""

    shape = "a folder, or as a .jsonl file"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        place.mkdir()

    def add(self, name: str, record: bytes) -> None:
        """Write a document. A name that is taken, as where several runs were put into one file, gets a number."""
        name = _file_name(name)
        path = self._place / f"{name}.json"
        number = 1
        while path.exists():
            number += 1
            path = self._place / f"{name}-{number}.json"
        path.write_bytes(record)

    def close(self, *, finished: bool) -> None:
        """Have the names on the disk."""
        if finished:
            sync_folder(self._place)


def _file_name(name: str) -> str:
    """`name` if it can be a file's in this folder; else as much of it as can, and a digest."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:_LONGEST_NAME]
    return safe if safe == name else f"{safe}~{blake2b(name.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


class Table(Output):
    """Parquet with the columns of verl; a record is a row."""

    shape = "a .parquet file"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        from gym.rollouts.export.verl import schema

        try:
            self._arrow: Any = importlib.import_module("pyarrow")  # it comes with `datasets`
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise UserError("writing Parquet needs the 'datasets' package: pip install 'gym-agents[datasets]'") from None
        self._schema: Any = schema(self._arrow)
        self._writer: Any = parquet.ParquetWriter(place, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._tokens = 0

    def add(self, name: str, record: dict[str, Any]) -> None:
        """Write a row, some time."""
        self._rows.append(record)
        self._tokens += len(cast(list[int], record.get("response_ids") or [])) + len(cast(list[int], record.get("prompt_ids") or []))
        if len(self._rows) >= _BATCH_ROWS or self._tokens >= _BATCH_TOKENS:
            self._write()

    def close(self, *, finished: bool) -> None:
        """Write the last rows and the footer."""
        if finished:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._tokens = [], 0


@contextmanager
def new_output(path: Path, kind: type[Output], *, overwrite: bool, source: Path) -> Generator[Output]:
    """An output that takes its place at `path` when the block ends well. Raises UserError if the place cannot be had."""
    _check_place(path, kind, overwrite=overwrite, source=source)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    output: Output | None = None
    try:
        output = kind(temporary)
        yield output
        output.close(finished=True)
        if kind is Documents and path.exists():
            shutil.rmtree(path)  # a folder cannot be put over another
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        if output is not None:
            output.close(finished=False)
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink(missing_ok=True)
        raise


def _check_place(path: Path, kind: type[Output], *, overwrite: bool, source: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: the folder {path.parent} does not exist: make it first")
    if not path.exists():
        return
    if source.exists() and path.samefile(source):
        raise UserError(f"--output {path} is the input: choose another --output")
    if not overwrite:
        raise UserError(f"--output {path} exists already: choose another --output, or replace it with --overwrite")
    if path.is_dir() != (kind is Documents) or (path.is_dir() and any(each.suffix != ".json" for each in path.iterdir())):
        raise UserError(f"--output {path} exists and is no earlier export of this form, so it is not replaced: choose another --output")
