"""Resuming: what an earlier run left beside the output, read back into a ledger.

Invariant: a rollout that has a row is done and is not run again. Of the others the newest reserved attempt
decides: recorded as failed, it is tried again while it may be; not recorded, it is owed, and gets a
new attempt. The tasks are those of the first run, from its own file; the input is compared and not read again.
Files are streamed, and a rollout costs a few bytes. A torn last line is cut, once everything else has been found
to be of this run; any other line that is not is refused, for the file is somebody else's.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import orjson

from gym.config.digests import differing
from gym.config.errors import UserError, listed
from gym.protocol.failures import rule
from gym.protocol.rollouts import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_KIND,
    FAILURE_MESSAGE,
    FAILURE_RECORD,
    FAILURE_STAGE,
    ROLLOUT_ID,
    Outcome,
)
from gym.rollouts.coverage import Coverage, coverage_of
from gym.rollouts.files import OutputFiles
from gym.rollouts.ledger import Ledger
from gym.rollouts.lines import LineTable
from gym.rollouts.manifest import CHANGED, RESUMED_BY, asked_for, note_resumed, read_head, read_next_attempts
from gym.rollouts.options import CollectOptions
from gym.rollouts.outcomes import INVALID_TASK, MASKED_RESULT, Failure
from gym.rollouts.source import INPUT_MARK, Prepared, Stopped
from gym.rollouts.store import cut_torn_line
from gym.tasks.rows import open_rows


@dataclass(frozen=True)
class Past:
    """An earlier run, as far as it got."""

    head: dict[str, Any]
    prepared: Prepared
    ledger: Ledger
    closed: bytearray
    """1 for each rollout that is not run again."""
    changed: list[str]
    """What is not as it was, by the names of options and keys."""
    torn: dict[str, int]
    """Bytes cut from the ends of files, where there were any."""
    run_ids: list[str]
    """The earlier runs, in order."""
    before: Coverage
    """The account as they left it."""

    @property
    def to_run(self) -> int:
        """Rollouts that are run now: owed ones, and failed ones with attempts left."""
        return self.prepared.tasks - sum(self.closed)

    def as_dict(self) -> dict[str, Any]:
        """What the launch record says of it."""
        return {
            "run_ids": self.run_ids,
            "ended_before": self.before.expected - self.before.owed,
            "to_run": self.to_run,
            "attempts_before": self.before.attempts,
            "changed": self.changed,
            "torn_bytes_cut": self.torn,
        }


def begun(files: OutputFiles) -> bool:
    """Whether there is a run to resume; False if none got as far as its first dispatch. Raises UserError for files of another origin."""
    if files.manifest.exists():
        read_head(files.manifest)
        return True
    # A run that was killed before it had a manifest leaves the tasks, and beside them failures, and no more.
    foreign = [files.output, files.attempts, files.coverage, files.metrics, files.model_calls]
    foreign += [] if files.materialized.exists() else [files.failures]
    for path in foreign:
        if path.exists() and path.stat().st_size:
            raise UserError(
                f"{path} has no manifest ({files.manifest.name}) beside it, so it cannot be resumed: "
                "choose another --output, or replace it with --overwrite"
            )
    return False


def check_same(files: OutputFiles, head: dict[str, Any], options: CollectOptions, config_keys: Mapping[str, str]) -> list[str]:
    """The names of options and configuration keys that are not as in the earlier run. Raises UserError that names them, unless allowed."""
    now, then = asked_for(options), cast("dict[str, Any]", head["asked"])
    asked = {name: f"{name} ({_given(then.get(name))} then, {_given(value)} now)" for name, value in now.items() if then.get(name) != value}
    keys = differing(config_keys, cast("dict[str, str]", head["config_keys"]))
    different = [*asked.values(), *keys]
    if different and not options.allow_unsafe_resume:
        raise UserError(
            f"--resume: {files.output} was begun with another {listed(different)}: "
            "give the same again, or mix them with --allow-unsafe-resume"
        )
    changed = [*asked, *keys]
    if _digest(options.input) != head["source_digest"]:
        if not options.allow_unsafe_resume:
            raise UserError(
                f"--resume: the rows in {options.input} are not those that {files.output} was begun with ({head['source']}): "
                "give the same file, or go on with the old rows with --allow-unsafe-resume"
            )
        changed.append("--input")
    return changed


def check_first_line(path: Path) -> None:
    """A look at an output before anything is started: raise UserError if its first line is no rollout's row."""
    try:
        with path.open("rb") as lines:
            line = lines.readline()
        if line.endswith(b"\n"):
            orjson.loads(line)[ROLLOUT_ID]
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"--resume: {path} cannot be read: {error.strerror or error}") from None
    except (KeyError, TypeError, ValueError):
        raise _foreign(path, 1) from None


def read_past(
    files: OutputFiles, options: CollectOptions, config_keys: Mapping[str, str], stopped: Callable[[], bool] = lambda: False
) -> Past:
    """Read everything back. Raises UserError if it is not the same run or not ours, Stopped if `stopped()` says so, OSError."""
    head = read_head(files.manifest)
    changed = check_same(files, head, options, config_keys)
    past = _Reader(files, head, options.attempts, stopped).past()
    torn = {path.name: cut for path in (files.output, files.failures, files.attempts) if (cut := cut_torn_line(path))}
    return replace(past, changed=changed, torn=torn)


def read_back(files: OutputFiles, attempts: int) -> Past:
    """What stands in files that are whole and ours. Raises UserError, OSError."""
    return _Reader(files, read_head(files.manifest), attempts, lambda: False).past()


class _Reader:
    """One pass over each of the files."""

    def __init__(self, files: OutputFiles, head: dict[str, Any], attempts: int, stopped: Callable[[], bool]) -> None:
        self._files, self._head, self._attempts, self._stopped = files, head, attempts, stopped
        invalid = int(head["invalid"])
        tasks = int(head["expected"]) - invalid
        self._table, self._ledger = LineTable(tasks), Ledger(tasks, invalid, attempts)
        self._retry, self._rows = bytearray(tasks), bytearray(tasks)
        self._invalid = 0
        self._prepared = Prepared(
            files.materialized,
            files.failures,
            rows=head["rows"],
            bad_rows=head["bad_rows"],
            tasks=tasks,
            invalid=invalid,
            positional_rows=head["positional_rows"],
            source_digest=head["source_digest"],
            tasks_digest=head["tasks_digest"],
        )

    def past(self) -> Past:
        """Read all."""
        self._read_tasks()
        try:
            for rollout_id, following in read_next_attempts(self._files.manifest):
                self._ledger.restore(self._line(rollout_id), following)
        except (LookupError, ValueError, OverflowError):
            raise _foreign(self._files.manifest, 0) from None
        self._each(self._files.attempts, self._read_attempt)
        if self._ledger.reserved and not self._files.output.exists():
            raise UserError(f"--resume: {self._files.output} is gone, and rollouts were in it: put it back, or begin anew with --overwrite")
        self._each(self._files.output, self._read_row)
        self._each(self._files.failures, self._read_failure)
        if self._invalid != self._prepared.invalid:
            raise UserError(f"--resume: {self._files.failures} is not as the run left it: put it back, or begin anew with --overwrite")
        closed = self._ledger.reopen(self._retry)
        before = coverage_of(self._ledger, invalid=self._prepared.invalid, max_attempts=self._attempts)
        run_ids = [self._head["run_id"], *self._head.get(RESUMED_BY, [])]
        return Past(self._head, self._prepared, self._ledger, closed, [], {}, run_ids, before)

    def _read_tasks(self) -> None:
        digest, path = hashlib.sha256(), self._files.materialized
        if not path.exists():
            raise UserError(f"--resume: {path} is gone, and with it the tasks: begin anew with --overwrite")
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                digest.update(line)
                mark = line.find(INPUT_MARK)
                if mark < 0 or number >= self._prepared.tasks:
                    break
                self._table.add(orjson.loads(line[:mark] + b"}")[ROLLOUT_ID])
                self._give_way(number)
        if len(self._table) != self._prepared.tasks or digest.hexdigest() != self._head["tasks_digest"]:
            raise UserError(f"--resume: {path} is not as the run wrote it, so its tasks are not known: begin anew with --overwrite")

    def _read_attempt(self, number: int, entry: dict[str, Any]) -> None:
        if RESUMED_BY in entry:
            note_resumed(self._head, entry[RESUMED_BY], entry[CHANGED])
            return
        self._ledger.restore(self._line(entry["rollout_id"]), int(entry["attempt"]) + 1)

    def _read_row(self, number: int, row: dict[str, Any]) -> None:
        rollout = self._line(row[ROLLOUT_ID])
        if self._rows[rollout]:
            raise UserError(
                f"--resume: {self._files.output}:{number}: rollout {row[ROLLOUT_ID]!r} stands there a second time: take one out"
            )
        self._rows[rollout] = 1
        ledger, reward = self._ledger, row.get("reward")
        ledger.restore(rollout, int(row[ATTEMPT_INDEX]) + 1)
        if row.get("mask_sample"):
            kind = row.get("failure_kind")
            failure = Failure(MASKED_RESULT, "", kind, not rule(kind).retry, "environment", "delivered")
            ledger.recall(rollout, failure)
            self._retry[rollout] = failure.retry
            ledger.settle(rollout, Outcome.MASKED)
        elif reward is None:
            ledger.settle(rollout, Outcome.UNSCORED)
        else:
            ledger.settle(rollout, Outcome.MEASURED, reward=reward)

    def _read_failure(self, number: int, row: dict[str, Any]) -> None:
        if row.get(FAILURE_CLASS) == INVALID_TASK:
            self._prepared.first_problem = self._prepared.first_problem or row[FAILURE_MESSAGE]
            self._invalid += 1
            return
        rollout, attempt = self._line(row[ROLLOUT_ID]), int(row[ATTEMPT_INDEX])
        record = cast("dict[str, Any]", row[FAILURE_RECORD])
        terminal = bool(record["failure"]["terminal"])
        failure = Failure(
            row[FAILURE_CLASS],
            "",
            row[FAILURE_KIND],
            terminal,
            record["source"],
            record["delivery"],
            stage=row[FAILURE_STAGE],
            http_status=record.get("http_status"),
        )
        ledger = self._ledger
        ledger.recall(rollout, failure)
        ledger.restore(rollout, attempt + 1)
        if not self._rows[rollout] and attempt + 1 == ledger.next_attempt(rollout):
            self._retry[rollout] = 2 if failure.refused else failure.retry  # by now there may be a better key
            ledger.settle(rollout, Outcome.FAILED, kind=failure.kind or failure.failure_class)

    def _line(self, rollout_id: str) -> int:
        line = self._table.line(rollout_id)
        if line is None:
            raise KeyError(rollout_id)  # told by its place: see `_each`
        return line

    def _each(self, path: Path, read: Callable[[int, dict[str, Any]], None]) -> None:
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                self._give_way(number)
                if not line.endswith(b"\n"):
                    return  # torn, and cut once all is known to be ours
                try:
                    read(number, orjson.loads(line))
                except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
                    raise _foreign(path, number) from None

    def _give_way(self, number: int) -> None:
        if number % 1024 == 0 and self._stopped():
            raise Stopped


def _foreign(path: Path, number: int) -> UserError:
    where = f"{path}:{number}" if number else str(path)
    return UserError(f"--resume: {where} is no line of this run: take it out, or choose another --output")


def _digest(path: Path) -> str:
    with open_rows(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _given(value: object) -> str:
    return "none" if value is None else repr(value)
