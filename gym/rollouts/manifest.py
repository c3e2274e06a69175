"""The manifest: what a run was made of, in digests, and the next attempt of each rollout.

Invariant: an attempt is on file before it is dispatched. While the run goes on the file is the
journal (`<stem>_attempts.jsonl`, one short line per attempt); at its end the journal is folded into
the manifest and removed. No values of the configuration and no secrets stand here.
"""

import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from gym import __version__
from gym.config.roots import INSTALL_ROOT
from gym.protocol.rollouts import ROLLOUT_ID
from gym.rollouts.files import OutputFiles, write_atomically
from gym.rollouts.ledger import Ledger
from gym.rollouts.options import CollectOptions
from gym.rollouts.source import INPUT_MARK, Prepared
from gym.rollouts.store import LineFile


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same: who, on what, under which configuration."""

    run_id: str
    config_digest: str


class Manifest:
    """The manifest of one run and its journal of attempts."""

    def __init__(self, files: OutputFiles, identity: Identity, options: CollectOptions, prepared: Prepared) -> None:
        """Write the manifest and open the journal. Raises OSError, StoreError."""
        self._files = files
        self._head: dict[str, Any] = {
            "schema_version": 1,
            "run_id": identity.run_id,
            "started_at": _now(),
            "finished_at": None,
            "source": options.input.name,
            "source_digest": prepared.source_digest,
            "tasks_digest": prepared.tasks_digest,
            "config_digest": identity.config_digest,
            "rows": prepared.rows,
            "bad_rows": prepared.bad_rows,
            "expected": prepared.expected,
            "num_repeats": options.num_repeats,
            "limit": options.limit,
            "max_rollout_attempts": options.attempts,
            "gym_version": __version__,
            "python_version": platform.python_version(),
            "git_revision": git_revision(INSTALL_ROOT),
            "selection_policy": "latest_reserved",
        }
        self._write(iter(()))
        self.journal = LineFile(files.attempts)

    def reserve(self, rollout_id: str, attempt: int) -> None:
        """Note that an attempt is about to be dispatched. Raises StoreError, and then it must not be."""
        self.journal.write(b'{"rollout_id":"%b","attempt":%d}\n' % (rollout_id.encode(), attempt))

    def finish(self, ledger: Ledger) -> None:
        """Write the manifest with the next attempts, and remove the journal. Raises OSError, StoreError."""
        self.journal.close()
        self._head["finished_at"] = _now()
        self._write(self._next_attempts(ledger))
        self._files.attempts.unlink(missing_ok=True)

    def _write(self, entries: Iterator[bytes]) -> None:
        opening = orjson.dumps(self._head, option=orjson.OPT_INDENT_2)[:-2]
        write_atomically(self._files.manifest, _parts(opening, entries))

    def _next_attempts(self, ledger: Ledger) -> Iterator[bytes]:
        with self._files.materialized.open("rb") as lines:
            for rollout, line in enumerate(lines):
                following = ledger.next_attempt(rollout)
                if following:
                    rollout_id: str = orjson.loads(line[: line.index(INPUT_MARK)] + b"}")[ROLLOUT_ID]
                    yield b'    "%b": %d' % (rollout_id.encode(), following)


def _parts(opening: bytes, entries: Iterator[bytes]) -> Iterator[bytes]:
    yield opening + b',\n  "next_attempt": {'
    separator = b"\n"
    for entry in entries:
        yield separator + entry
        separator = b",\n"
    yield b"\n  }\n}\n" if separator != b"\n" else b"}\n}\n"


def git_revision(folder: Path) -> str | None:
    """The commit that a working copy stands at, with `+` behind it if it has local changes; None for no working copy."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--match=", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
