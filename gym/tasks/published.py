"""Published rows as they come: from the Hugging Face hub, or from a JSONL or Parquet file.

Rows are a stream, and come in the same order each time. The hub and Parquet need the `datasets`
package, which is loaded only for them.
"""

import importlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gym.config.errors import UserError
from gym.tasks.rows import RowProblem, read_rows


@dataclass(frozen=True)
class HubDataset:
    """A data set of the hub, at a revision (a commit, tag or branch; None: the newest)."""

    name: str
    split: str
    revision: str | None = None
    config: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.split}{f', {self.revision}' if self.revision else ''})"


def published_rows(source: HubDataset | Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """The rows from number `start` on. Raises UserError if the source cannot be read."""
    if isinstance(source, HubDataset):
        return _hub_rows(source, start)
    if source.suffix == ".parquet":
        return _parquet_rows(source, start)
    return itertools.islice(_jsonl_rows(source), start, None)


def _hub_rows(source: HubDataset, start: int) -> Iterator[dict[str, Any]]:
    datasets = _package("datasets", f"{source} from the hub", "; or give a local file with --source")
    try:
        rows = datasets.load_dataset(source.name, source.config, split=source.split, revision=source.revision, streaming=True)
        for row in rows.skip(start) if start else rows:
            yield dict(cast("Mapping[str, Any]", row))
    except Exception as error:  # the package and what it stands on raise all sorts
        said = str(error).strip().splitlines() or [""]
        reason = f"{type(error).__name__}: {said[0][:300]}"
        raise UserError(
            f"{source} cannot be read from the hub: {reason} — check the connection, or give a local file with --source"
        ) from error


def _parquet_rows(path: Path, start: int) -> Iterator[dict[str, Any]]:
    parquet = _package("pyarrow.parquet", path)  # it comes with `datasets`
    try:
        file = parquet.ParquetFile(path)
        rows = (row for batch in file.iter_batches(batch_size=64) for row in batch.to_pylist())
        yield from itertools.islice(rows, start, None)
    except (OSError, ValueError) as error:  # the package's own errors are ValueErrors
        raise UserError(f"{path} cannot be read as Parquet: {getattr(error, 'strerror', None) or error}") from None


def _package(name: str, what: object, hint: str = "") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"reading {what} needs the 'datasets' package: pip install 'gym-agents[datasets]'{hint}") from None


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    for row in read_rows(path):
        if isinstance(row, RowProblem):
            raise UserError(str(row))
        yield row.value
