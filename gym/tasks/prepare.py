"""Making a data set's file of rows from what is published: the body of every `prepare.py`.

Invariant: the output is the whole data set or is not there. Work goes to `<output>.partial`, a row a
line, and the note beside it says from what; a run that was cut short goes on after the last whole line if
everything is the same, and begins anew if not. The same source gives the same bytes.
"""

import argparse
import datetime
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from gym.config.errors import UserError
from gym.config.roots import search_roots
from gym.tasks.materialize import TaskError, own_name
from gym.tasks.prompts import PromptTemplate
from gym.tasks.published import HubDataset, published_rows
from gym.tasks.schema import TaskSchema, load_schema

Convert = Callable[[dict[str, Any]], dict[str, Any] | None]
"""From a published row to ours; None leaves it out. Raises ValueError for one that cannot be used."""

_SYNC_ROWS = 200


@dataclass(frozen=True)
class Recipe:
    """How one data set is made. Paths are looked for as configs are: working directory, extra roots, install root."""

    title: str
    hub: HubDataset
    output: Path
    template: Path
    """The prompt; it may use `names`."""
    server: Path
    """The implementation folder whose `task_data.py` each row must fit."""
    convert: Convert = dict
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that every row gets, such as `split`."""
    prompt_fields: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=dict[str, Callable[[Mapping[str, Any]], str]])
    """Names of the template beside `statement`, and where their text comes from."""
    statement: str = "problem_statement"
    """The row's field that says what is asked; the template may name it."""


def prepare_main(
    recipe: Recipe,
    arguments: Sequence[str] | None = None,
    *,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    finish: Callable[[Recipe, argparse.Namespace], Recipe] | None = None,
) -> None:
    """The command line of a `prepare.py`; exits with 1 and one line for a mistake. `options` and `finish` add what one data set needs."""
    parser = argparse.ArgumentParser(description=recipe.title)
    parser.add_argument("--source", type=Path, metavar="FILE", help=f"a JSONL or Parquet file with the rows; else {recipe.hub} of the hub")
    parser.add_argument("--revision", help="another revision of the hub's data set")
    parser.add_argument("--output", type=Path, metavar="FILE", default=recipe.output, help="default: %(default)s")
    parser.add_argument("--prompt", type=Path, metavar="FILE", default=recipe.template, help="prompt template; default: %(default)s")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="keep only the rows with these instance ids, one a line")
    parser.add_argument("--limit", type=int, metavar="N", help="stop after so many rows")
    if options is not None:
        options(parser)
    chosen = parser.parse_args(arguments)
    try:
        if finish is not None:
            recipe = finish(recipe, chosen)
        hub = HubDataset(recipe.hub.name, recipe.hub.split, chosen.revision or recipe.hub.revision, recipe.hub.config)
        job = PrepareJob(recipe, chosen.source or hub, chosen.output, chosen.prompt, _ids(chosen.ids), chosen.limit)
        written = job.run()
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {where}{error.strerror or error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command goes on where it stopped\n")
        sys.exit(130)
    sys.stderr.write(f"{written} rows -> {chosen.output}\n")


class PrepareJob:
    """One data set being made."""

    def __init__(
        self,
        recipe: Recipe,
        source: HubDataset | Path,
        output: Path,
        template: Path,
        ids: frozenset[str] | None = None,
        limit: int | None = None,
    ) -> None:
        self._recipe, self._source, self._output, self._ids, self._limit = recipe, source, output, ids, limit
        names = (recipe.statement, *recipe.prompt_fields)
        self._template = PromptTemplate.read(_found(template), names)
        schema = load_schema(_found(recipe.server))
        if schema is None:
            raise UserError(f"{recipe.server} has no task_data.py to check rows with")
        self._schema: TaskSchema = schema
        self._partial = output.with_name(output.name + ".partial")
        self._note = output.with_name(output.name + ".partial.json")

    def run(self) -> int:
        """Make the file; how many rows it has. Raises UserError and OSError; what was done by then is gone on with the next time."""
        self._output.parent.mkdir(parents=True, exist_ok=True)
        seen, written = self._resume()
        with self._partial.open("ab") as out:
            try:
                for row in published_rows(self._source, seen):
                    if self._limit is not None and written >= self._limit:
                        break
                    made = self._made(row, seen)
                    if made is not None:
                        out.write(orjson.dumps(made, default=_plain, option=orjson.OPT_APPEND_NEWLINE))
                        written += 1
                    seen += 1
                    if seen % _SYNC_ROWS == 0:
                        self._note_down(out, seen, written)
            finally:
                self._note_down(out, seen, written)
        if not written:
            self._forget()
            raise UserError(f"{self._source} gives no row{' with one of the --ids' if self._ids is not None else ''}")
        self._partial.replace(self._output)
        self._note.unlink(missing_ok=True)
        return written

    def _made(self, row: dict[str, Any], number: int) -> dict[str, Any] | None:
        """One row of ours; None if it is not wanted. Raises UserError that says which row is wrong."""
        try:
            converted = self._recipe.convert(row)
            if converted is None:
                return None
            name = own_name(converted)
            if self._ids is not None and name not in self._ids:
                return None
            values = {self._recipe.statement: _text(converted, self._recipe.statement)}
            values |= {field_name: make(converted) for field_name, make in self._recipe.prompt_fields.items()}
            prompt = {"input": [{"role": "user", "content": self._template.fill(values)}]}
            made = {**converted, **self._recipe.fixed, "responses_create_params": prompt}
            self._schema.check(made)
        except (ValueError, TaskError) as error:
            raise UserError(f"{self._source}: row {number + 1} ({row.get('instance_id', 'no instance_id')}): {error}") from error
        return made

    def _identity(self) -> str:
        """What the work so far depends on; the size and time of a local file stand for its content."""
        source = self._source
        of_file = (
            [str(source.resolve()), source.stat().st_size, source.stat().st_mtime_ns]
            if isinstance(source, Path) and source.exists()
            else []
        )
        parts = [
            str(source),
            *of_file,
            self._template.text,
            self._limit,
            sorted(self._ids) if self._ids is not None else None,
            dict(self._recipe.fixed),
        ]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()

    def _resume(self) -> tuple[int, int]:
        """How many published rows were read and rows written by an earlier run of the same; the partial file is cut there."""
        try:
            note = orjson.loads(self._note.read_bytes())
            if note["identity"] == self._identity() and self._partial.stat().st_size >= note["size"]:
                os.truncate(self._partial, note["size"])
                sys.stderr.write(f"going on after {note['seen']} rows\n")
                return int(note["seen"]), int(note["written"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or it tells us nothing: begin anew
        self._forget()
        return 0, 0

    def _note_down(self, out: BinaryIO, seen: int, written: int) -> None:
        """Bring what there is to disk, and then the note about it; before the first row there is nothing to keep."""
        if not seen:
            self._forget()
            return
        out.flush()
        os.fsync(out.fileno())
        temporary = self._note.with_name(self._note.name + ".tmp")
        temporary.write_bytes(orjson.dumps({"identity": self._identity(), "seen": seen, "written": written, "size": out.tell()}))
        temporary.replace(self._note)

    def _forget(self) -> None:
        self._partial.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _found(path: Path) -> Path:
    roots = search_roots()
    found = next((place / path for place in roots if (place / path).exists()), None)
    if found is None:
        raise UserError(f"{path} is not there (looked below {', '.join(map(str, roots))})")
    return found


def _ids(path: Path | None) -> frozenset[str] | None:
    if path is None:
        return None
    return frozenset(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {type(value).__name__}")
    return value


def _plain(value: Any) -> Any:
    """What Parquet holds and JSON has no word for."""
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    raise TypeError(f"a row holds a {type(value).__name__}, which cannot be written as JSON")
