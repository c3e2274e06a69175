"""An append-only file of what is still owed, for whatever is owed: sessions to close, sandboxes to release.

A line is written before a thing is asked for, and another once it has been given back, so that
whatever a killed process leaves open can be closed by the next one. Invariants: a torn last line
(the machine died while writing) is ignored, since its request was not sent yet; a line that could
not be written whole is taken back, so that it cannot spoil the next; a failed compaction leaves the
old file. The file is the truth: others may append `paid` lines to it (`note_paid`); one that falls
into a compaction is lost, and its debt is paid once more.

Left out: what a record means, and paying.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import orjson

log = logging.getLogger("gym.journal")

COMPACT_BYTES = 4 * 2**20

Record = dict[str, Any]


class Journal:
    """One file, of which this object is the only writer of debts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, Record] = read_open(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size:
            self._compact()
            if self._size == 0:
                os.write(self._file, b"\n")  # ends a torn last line where the file could not be made anew

    @property
    def open(self) -> dict[str, Record]:
        """What is still owed as far as this process knows, oldest first."""
        return dict(self._open)

    def owe(self, key: str, record: Record) -> None:
        """Write down a debt, or write it down anew. Raises OSError if that is not possible."""
        self._append({"owe": key, **record})
        self._open[key] = record

    def paid(self, key: str) -> None:
        """Write down that a debt is paid. If that is not possible it will be paid once more, which must do no harm."""
        if self._open.pop(key, None) is None:
            return
        try:
            self._append({"paid": key})
        except OSError as error:
            log.warning("cannot note in %s that %s was closed: %s", self.path, key, error)
            return
        if self._size > COMPACT_BYTES:
            self._compact()

    def close(self) -> None:
        """Close the file; it is removed if nothing is owed."""
        os.close(self._file)
        if not self._open or not read_open(self.path):
            self.path.unlink(missing_ok=True)

    def _append(self, record: Record) -> None:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        append_whole(self._file, line)
        self._size += len(line)

    def _compact(self) -> None:
        """Write the file anew with only what is owed; a full disk leaves the old one."""
        kept = read_open(self.path)
        self._open = {key: record for key, record in self._open.items() if key in kept}
        lines = [orjson.dumps({"owe": key, **record}, option=orjson.OPT_APPEND_NEWLINE) for key, record in self._open.items()]
        fresh = self.path.with_suffix(".tmp")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(lines)
            fresh.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._size = 0  # try again after as much again
            return
        os.close(self._file)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = sum(map(len, lines))


def append_whole(file: int, line: bytes) -> None:
    """Append to a file that was opened for that. Raises OSError, and then what was written of the line is taken back."""
    written = 0
    try:
        while written < len(line):
            written += os.write(file, memoryview(line)[written:])
    except OSError:
        if written:
            with contextlib.suppress(OSError):
                os.ftruncate(file, os.fstat(file).st_size - written)
        raise


def note_paid(path: Path, key: str) -> None:
    """Write into somebody else's journal that a debt of theirs is paid. Raises OSError; a journal that is gone is well."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # A dead writer may have left a torn line, which this must not become a part of.
        append_whole(file, b"\n" + orjson.dumps({"paid": key}, option=orjson.OPT_APPEND_NEWLINE))
    finally:
        os.close(file)


def read_open(path: Path) -> dict[str, Record]:
    """What the journal at `path` says is still owed, in the order in which it was taken on. What is no record is skipped."""
    found: dict[str, Record] = {}
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return found
    for line in content.split(b"\n"):
        try:
            record = orjson.loads(line)
            if "owe" in record:
                key = record.pop("owe")
                if isinstance(key, str):
                    found[key] = record
            else:
                found.pop(record["paid"], None)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue
    return found
