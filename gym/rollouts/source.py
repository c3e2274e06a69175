"""From rows to rollouts: the file of expanded tasks, written before anything is dispatched.

Invariant: every row that is read (up to the limit) gives exactly `num_repeats` rollouts, each in
one of two places: a line of the materialized file, or a failure row of class `invalid_task`. Ids
are unique or nothing runs. Both files are written under temporary names; the collector puts them
in place once it may replace what was there.

A line has a fixed layout, `{<ids>,"task_id":…,"task_input":…}`, so that the feed can hand a task on
without parsing it again. Of a shard only its tasks are written: every n-th, by their index. Rows that
name neither an index nor a rollout get their position; the same line again directly below is one more
repeat of the same task, as expanded data sets have it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym.config.errors import UserError
from gym.protocol.rollouts import ENVIRONMENT_SERVER, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX
from gym.rollouts.duplicates import Clash, DuplicateFinder
from gym.rollouts.files import OutputFiles
from gym.rollouts.options import CollectOptions
from gym.rollouts.outcomes import Episode, invalid_task, usable_rollout_id
from gym.rollouts.records import RecordMaker
from gym.rollouts.store import LineFile
from gym.rollouts.targets import Targets
from gym.tasks.materialize import Materialized, TaskError, check_materialized, is_materialized, materialize_task, own_name
from gym.tasks.rows import Row, RowProblem, read_rows
from gym.tasks.schema import TaskSchema, load_schema

INPUT_MARK = b',"task_input":'
"""What separates a line's ids from its task; it cannot stand inside the ids, where quotes are escaped."""

_MAX_INDEX = 1 << 62


class Stopped(Exception):
    """The preparation was asked to stop."""


@dataclass
class Prepared:
    """What the preparation found; counts are of rollouts unless they say rows."""

    materialized: Path
    failures: Path
    rows: int = 0
    bad_rows: int = 0
    tasks: int = 0
    """Rollouts to dispatch: lines of the materialized file."""
    invalid: int = 0
    positional_rows: int = 0
    """Rows named by their position only."""
    first_problem: str | None = None
    source_digest: str = ""
    tasks_digest: str = ""

    @property
    def expected(self) -> int:
        """Every rollout that is to be accounted for."""
        return self.tasks + self.invalid

    def place(self, files: OutputFiles) -> None:
        """Put both files where they belong; what was there is replaced."""
        self.materialized.replace(files.materialized)
        self.failures.replace(files.failures)

    def discard(self) -> None:
        """Remove both files, if they are not in place yet."""
        self.materialized.unlink(missing_ok=True)
        self.failures.unlink(missing_ok=True)


@dataclass
class _Names:
    """Every name given out, to find those given out twice."""

    rollouts: DuplicateFinder = field(default_factory=DuplicateFinder)
    tasks: DuplicateFinder = field(default_factory=DuplicateFinder)
    count: int = 0

    def add(self, line: int, task_index: int, task_name: str | None, rollout_ids: list[str]) -> None:
        for rollout_id in rollout_ids:
            self.rollouts.add(rollout_id, self.count, line)
            self.count += 1
        if task_name is not None:
            self.tasks.add(task_name, task_index, line)


class Preparation:
    """One pass over the input."""

    def __init__(self, options: CollectOptions, targets: Targets, records: RecordMaker, files: OutputFiles) -> None:
        self._options, self._targets, self._records = options, targets, records
        self._chosen = targets.choose(options.environment, options.agent)
        self._schemas: dict[str, TaskSchema | None] = {}
        self._tasksets: dict[str, str] = {}
        self._names = _Names()
        self._digest = hashlib.sha256()
        self._previous: tuple[bytes, int, int] = (b"", -1, 0)
        """The last row: its line, its task index, and how many of its repeats there are so far."""
        hidden = files.output.with_name(f".{files.stem}")
        self.prepared = Prepared(Path(f"{hidden}_materialized_inputs.tmp"), Path(f"{hidden}_failures.tmp"))

    def run(self, stopped: Callable[[], bool] = lambda: False) -> Prepared:
        """Read everything, write both files. Raises UserError if nothing can run, Stopped if `stopped()` says so."""
        found = self.prepared
        found.discard()
        source = hashlib.sha256()
        tasks, failures = LineFile(found.materialized), LineFile(found.failures)
        position = -1
        try:
            for position, row in enumerate(read_rows(self._options.input, limit=self._options.limit, digest=source)):
                if stopped():
                    raise Stopped
                self._expand(row, position, tasks, failures)
        finally:
            tasks.close()
            failures.close()
        if position < 0:
            raise UserError(f"input file {self._options.input} holds no rows")
        self._refuse_duplicates()
        found.source_digest, found.tasks_digest = source.hexdigest(), self._digest.hexdigest()
        self._names = _Names()
        return found

    def _expand(self, row: Row | RowProblem, position: int, tasks: LineFile, failures: LineFile) -> None:
        index, first, own_id, environment = position, 0, None, None
        try:
            if isinstance(row, RowProblem):
                raise TaskError(row.message)
            if row.raw == self._previous[0] and ROLLOUT_ID not in row.value and ROLLOUT_INDEX not in row.value:
                index, first = self._previous[1], self._previous[2]
            else:
                index = _whole_number(row.value, TASK_INDEX, position)
                first = _whole_number(row.value, ROLLOUT_INDEX, 0) if self._options.num_repeats == 1 else 0
            self._previous = (row.raw, index, first + self._options.num_repeats)
            if not self._ours(index):
                return
            own_id = self._own_id(row.value)
            environment, task = self._task(row, index)
        except TaskError as error:
            if not self._ours(index):
                return
            self.prepared.rows += 1
            self._reject(row, error, index, self._ids(own_id, index, first), first, environment, failures)
            return
        self.prepared.rows += 1
        ids = self._ids(own_id, index, first)
        name = task["task_id"]
        self._names.add(row.line, index, f"{name['taskset']}\0{name['task_id']}", ids)
        body = INPUT_MARK + orjson.dumps(task["task_input"]) + b"}\n"
        for offset, rollout_id in enumerate(ids):
            head = {
                TASK_INDEX: index,
                ROLLOUT_INDEX: first + offset,
                ROLLOUT_ID: rollout_id,
                ENVIRONMENT_SERVER: environment,
                "task_id": name,
            }
            line = orjson.dumps(head)[:-1] + body
            self._digest.update(line)
            tasks.write(line)
        self.prepared.tasks += len(ids)

    def _reject(
        self, row: Row | RowProblem, error: TaskError, index: int, ids: list[str], first: int, environment: str | None, failures: LineFile
    ) -> None:
        found = self.prepared
        problem = str(RowProblem(row.path, row.line, str(error)))
        found.first_problem = found.first_problem or problem
        found.bad_rows += 1
        found.invalid += len(ids)
        self._names.add(row.line, index, None, ids)
        for offset, rollout_id in enumerate(ids):
            episode = Episode(rollout_id, 0, index, first + offset, environment, None)
            failures.write(self._records.failure(episode, invalid_task(problem)))

    def _task(self, row: Row, index: int) -> tuple[str, Materialized]:
        """The task that a row is, and the environment server that it goes to. Raises TaskError."""
        value = row.value
        if is_materialized(value):
            task = check_materialized(value)
            environment = self._targets.of_taskset(task["task_id"]["taskset"], self._chosen)
        else:
            environment = self._targets.of_flat_row(value, self._chosen, self._options.taskset)
            if environment not in self._tasksets:
                self._tasksets[environment] = self._targets.taskset_of(environment, self._options.taskset)
            task = materialize_task(value, taskset=self._tasksets[environment], task_index=index)
            if own_name(value) is None:
                self.prepared.positional_rows += 1
        self._check_schema(environment, task["task_input"])
        return environment, task

    def _check_schema(self, environment: str, task_input: dict[str, Any]) -> None:
        if environment not in self._schemas:
            directory = self._targets.directories.get(environment)
            self._schemas[environment] = load_schema(directory) if directory is not None else None
        schema = self._schemas[environment]
        if schema is not None:
            schema.check(task_input)

    def _ours(self, index: int) -> bool:
        """Whether a task belongs to this shard; its repeats go with it."""
        shard = self._options.shard
        return shard is None or index % shard[1] == shard[0] - 1

    def _own_id(self, row: dict[str, Any]) -> str | None:
        if row.get(ROLLOUT_ID) is None:
            return None
        try:
            return usable_rollout_id(row[ROLLOUT_ID])
        except ValueError as error:
            raise TaskError(f"{ROLLOUT_ID}: {error}") from None

    def _ids(self, own: str | None, index: int, first: int) -> list[str]:
        repeats = range(first, first + self._options.num_repeats)
        if own is None:
            return [f"{index}-{repeat}" for repeat in repeats]
        return [own] if len(repeats) == 1 else [f"{own}-r{repeat}" for repeat in repeats]

    def _refuse_duplicates(self) -> None:
        clashes = self._names.rollouts.clashes()
        if clashes:
            self._refuse(clashes, "rollout id", lambda head: head[ROLLOUT_ID])
        clashes = self._names.tasks.clashes()
        if clashes:
            self._refuse(clashes, "task id", lambda head: f"{head['task_id']['taskset']}\0{head['task_id']['task_id']}")

    def _refuse(self, clashes: list[Clash], what: str, name_of: Callable[[dict[str, Any]], str]) -> None:
        """Raise UserError for the clashes that are real: two lines with the very same name."""
        suspects = {clash.digest: clash for clash in clashes}
        names: dict[int, set[str]] = {}
        with self.prepared.materialized.open("rb") as lines:
            for line in lines:
                name = name_of(orjson.loads(line[: line.index(INPUT_MARK)] + b"}"))
                if hash(name) in suspects:
                    names.setdefault(hash(name), set()).add(name)
        shown: list[str] = []
        for digest, clash in suspects.items():
            if len(names.get(digest, ())) > 1:
                continue  # two names with one hash
            name = next(iter(names.get(digest, {"?"}))).rpartition("\0")[2]
            shown.append(f"{name!r} (lines {clash.first_line} and {clash.second_line})")
        if shown:
            more = f", and {len(shown) - 3} more" if len(shown) > 3 else ""
            raise UserError(f"{self._options.input}: the same {what} stands in two rows: {', '.join(shown[:3])}{more}; give each its own")


def _whole_number(row: dict[str, Any], key: str, otherwise: int) -> int:
    value = row.get(key)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_INDEX:
        raise TaskError(f"{key} must be a whole number from 0 on, not {value!r}")
    return value
