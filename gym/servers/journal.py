"""The journal of what an environment server still owes: sessions that must be closed.

One file per instance; how it is written and survives a crash is `gym.journal`'s. Whatever a killed
server leaves open can be closed by the next one, or by this one later.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym import journal


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
        self._file = journal.Journal(path)

    @property
    def debts(self) -> list[Debt]:
        """What is still owed."""
        return list(_debts(self._file.open).values())

    def owe(self, debt: Debt) -> None:
        """Write down a session that is about to be asked for. Raises OSError if that is not possible."""
        self._file.owe(debt.key, {"peer": debt.peer, "route": debt.route, "body": debt.body})

    def paid(self, key: str) -> None:
        """Write down that a session was closed. If that is not possible it will be closed once more, which does no harm."""
        self._file.paid(key)

    def close(self) -> None:
        """Close the file; it is removed if nothing is owed."""
        self._file.close()


def read_debts(path: Path) -> dict[str, Debt]:
    """What the journal at `path` says is still owed, in the order in which it was taken on."""
    return _debts(journal.read_open(path))


def _debts(records: dict[str, journal.Record]) -> dict[str, Debt]:
    return {key: Debt(key, r["peer"], r["route"], r["body"]) for key, r in records.items() if r.keys() >= {"peer", "route", "body"}}
