"""The journal of what an environment server still owes: sessions that must be closed.

One append-only file per instance. A line is written before the session is asked for, and another
once its close has succeeded, so that whatever a killed server leaves open can be closed by the
next one, or by this one later. A torn last line (the machine died while writing) is ignored: its
request was not sent yet. A line that could not be written whole is taken back, so that it cannot
spoil the next.
"""

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

log = logging.getLogger("gym.servers.journal")

_COMPACT_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Debt:
    """One session to close: POST `body` to `route` of instance `peer`."""

    key: str
    peer: str
    route: str
    body: dict[str, Any]


class Journal:
    """Debts of one environment server, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Debt] = read_debts(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size:
            self._compact()
            if self._size == 0:
                os.write(self._file, b"\n")  # ends a torn last line where the file could not be made anew

    @property
    def debts(self) -> list[Debt]:
        """What is still owed."""
        return list(self._open.values())

    def owe(self, debt: Debt) -> None:
        """Write down a session that is about to be asked for. Raises OSError if that is not possible."""
        self._append({"owe": debt.key, "peer": debt.peer, "route": debt.route, "body": debt.body})
        self._open[debt.key] = debt

    def paid(self, key: str) -> None:
        """Write down that a session was closed. If that is not possible it will be closed once more, which does no harm."""
        if self._open.pop(key, None) is None:
            return
        try:
            self._append({"paid": key})
        except OSError as error:
            log.warning("cannot note in %s that %s was closed: %s", self._path, key, error)
            return
        if self._size > _COMPACT_BYTES:
            self._compact()

    def close(self) -> None:
        """Close the file; it is removed if nothing is owed."""
        os.close(self._file)
        if not self._open:
            self._path.unlink(missing_ok=True)

    def _append(self, record: dict[str, Any]) -> None:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        before = os.fstat(self._file).st_size
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise
        self._size += len(line)

    def _compact(self) -> None:
        """Write the file anew with only what is owed; a full disk leaves the old one."""
        lines = [orjson.dumps({"owe": d.key, "peer": d.peer, "route": d.route, "body": d.body}) + b"\n" for d in self._open.values()]
        fresh = self._path.with_suffix(".tmp")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(lines)
            fresh.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._size = 0  # try again after as much again
            return
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._size = sum(map(len, lines))


def read_debts(path: Path) -> dict[str, Debt]:
    """What the journal at `path` says is still owed, in the order in which it was taken on."""
    debts: dict[str, Debt] = {}
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return debts
    for line in content.split(b"\n"):
        try:
            record = orjson.loads(line)
            if "owe" in record:
                debts[record["owe"]] = Debt(record["owe"], record["peer"], record["route"], record["body"])
            else:
                debts.pop(record["paid"], None)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
    return debts
