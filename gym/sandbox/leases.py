"""The lease journal: every sandbox that a server of a run has asked for and not yet seen gone.

A run has a folder of them (`<run>/leases/`): one append-only file per instance (`<instance>.jsonl`),
the provider blocks that the sandboxes were made with (`providers.json`), and a heartbeat of the run
(`heartbeat.json`) for those who cannot see its processes. Invariants: a sandbox's id is in the file
before create is sent, and a second line says that it is gone only once a provider has said so; a
lease whose owner gave it up is anybody's to close.

Only the instance writes into its file, but for the reaper's notes that something is gone.
"""

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from gym.journal import Journal, note_paid, read_open
from gym.sandbox.ownership import EXPIRES_AT, Ownership
from gym.sandbox.spec import SandboxError

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
FRESH_SECONDS = 180.0
"""A run whose heartbeat is older than this, by the clocks of both machines, is taken for dead."""

_FOLDER = "leases"
_BEAT, _PROVIDERS = "heartbeat.json", "providers.json"


@dataclass(frozen=True)
class Lease:
    """One sandbox that is owed. `labels` name it and its owner, as those of the sandbox itself do."""

    sandbox_id: str
    provider: str
    """The name of the provider block."""
    place: str
    labels: dict[str, str] = field(default_factory=dict[str, str])
    taken: float = 0.0
    """Unix seconds, as is `given_up`."""
    given_up: float | None = None
    """Since when its owner wants it gone and could not make sure of that."""


class LeaseBook:
    """The leases of one instance. The file is made with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal: Journal | None = None

    def at(self, provider: str) -> "Leases":
        """The leases of sandboxes of one provider block."""
        return Leases(self, provider)

    def write(self, lease: Lease) -> None:
        """Write a lease down, or write it down anew. Raises OSError."""
        if self._journal is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._journal = Journal(self._path)
        self._journal.owe(lease.sandbox_id, _record(lease))

    def get(self, sandbox_id: str) -> Lease | None:
        """The lease of a sandbox; None if there is none."""
        record = self._journal.open.get(sandbox_id) if self._journal is not None else None
        return None if record is None else _lease(sandbox_id, record)

    def drop(self, sandbox_id: str) -> None:
        """Note that a sandbox is gone. A note that cannot be written is only work for the reaper."""
        if self._journal is not None:
            self._journal.paid(sandbox_id)
            return
        with contextlib.suppress(OSError):
            note_paid(self._path, sandbox_id)  # a predecessor's

    def close(self) -> None:
        """Close the file; it stays if something is owed."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None


@dataclass(frozen=True)
class Leases:
    """Where an owner writes down what it holds of one provider block."""

    book: LeaseBook
    provider: str

    def take(self, sandbox_id: str, place: str, ownership: Ownership) -> None:
        """Write down a sandbox that is about to be asked for. Raises SandboxError (persistence_failed), and then it must not be."""
        labels = {name: value for name, value in ownership.labels(0, {}).items() if name != EXPIRES_AT}
        try:
            self.book.write(Lease(sandbox_id, self.provider, place, labels, time.time()))
        except OSError as error:
            raise SandboxError(
                f"no sandbox is made, as the lease journal cannot be written: {error.strerror or error}", "persistence_failed"
            ) from error

    def give_up(self, sandbox_id: str) -> None:
        """Let the reaper make sure that the sandbox is gone."""
        lease = self.book.get(sandbox_id)
        if lease is None or lease.given_up is not None:
            return
        given = Lease(lease.sandbox_id, lease.provider, lease.place, lease.labels, lease.taken, time.time())
        try:
            self.book.write(given)
        except OSError as error:
            log.warning("sandbox %s is given up, which cannot be noted: %s; it is released with its run", sandbox_id, error)

    def drop(self, sandbox_id: str) -> None:
        """Note that a sandbox is gone."""
        self.book.drop(sandbox_id)


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life of a run. `at` is in Unix seconds."""

    run_id: str
    at: float


class LeaseFolder:
    """All leases of one run, seen by its reaper or by that of another run."""

    def __init__(self, run_folder: Path) -> None:
        self.run_id = run_folder.name
        self.path = run_folder / _FOLDER

    def book_path(self, instance: str) -> Path:
        """The file of one instance."""
        return self.path / f"{instance}.jsonl"

    @property
    def run_book(self) -> Path:
        """The file of what is the run's own, and no instance's: its networks. No instance can have this name."""
        return self.book_path("run.own")

    def owed(self) -> dict[Path, list[Lease]]:
        """What is owed, by file. A file that cannot be read counts as owing nothing that could be released."""
        found: dict[Path, list[Lease]] = {}
        for path in sorted(self.path.glob("*.jsonl")):
            try:
                leases = [_lease(sandbox_id, record) for sandbox_id, record in read_open(path).items()]
            except OSError as error:
                log.warning("cannot read the lease journal %s: %s", path, error)
                continue
            if leases:
                found[path] = leases
        return found

    def note_gone(self, path: Path, lease: Lease) -> None:
        """Note that a sandbox of an owner that is dead, or gave it up, is gone."""
        try:
            note_paid(path, lease.sandbox_id)
        except OSError as error:
            log.warning("cannot note in %s that %s is gone: %s", path, lease.sandbox_id, error)

    def write_providers(self, blocks: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the provider blocks of the run, for whoever must release its sandboxes. Raises OSError."""
        self._write(_PROVIDERS, {name: dict(block) for name, block in blocks.items()})

    def providers(self) -> dict[str, dict[str, Any]]:
        """The provider blocks of the run; none if they cannot be read."""
        return self._read(_PROVIDERS)

    def beat(self) -> None:
        """Say that the run lives. Raises OSError."""
        self._write(_BEAT, {"run_id": self.run_id, "at": time.time()})

    def heartbeat(self) -> Heartbeat | None:
        """The last sign of life; None if there is none."""
        said = self._read(_BEAT)
        at = said.get("at")
        return Heartbeat(self.run_id, float(at)) if isinstance(at, int | float) else None

    def _write(self, name: str, content: dict[str, Any]) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        fresh = self.path / f"{name}.tmp"
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(orjson.dumps(content))
        fresh.replace(self.path / name)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = orjson.loads((self.path / name).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _record(lease: Lease) -> dict[str, Any]:
    return {
        "provider": lease.provider,
        "place": lease.place,
        "labels": lease.labels,
        "taken": lease.taken,
        **({} if lease.given_up is None else {"given_up": lease.given_up}),
    }


def _lease(sandbox_id: str, record: dict[str, Any]) -> Lease:
    labels = record.get("labels")
    known = {str(k): str(v) for k, v in cast("dict[Any, Any]", labels).items()} if isinstance(labels, dict) else {}
    given_up = record.get("given_up")
    return Lease(
        sandbox_id,
        str(record.get("provider", "")),
        str(record.get("place", "")),
        known,
        float(record.get("taken") or 0),
        None if given_up is None else float(given_up),
    )
