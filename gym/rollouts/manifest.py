"""The manifest: what a run was made of, in digests, and the next attempt of each rollout.

Invariant: an attempt is on file before it is dispatched. While the run goes on the file is the
journal (`<stem>_attempts.jsonl`, one short line per attempt); at its end the journal is folded into
the manifest and removed. No values of the configuration and no secrets stand here.
"""

import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson

from gym import __version__
from gym.config.digests import digest_of
from gym.config.errors import UserError
from gym.config.roots import INSTALL_ROOT
from gym.protocol.rollouts import ROLLOUT_ID
from gym.rollouts.files import OutputFiles, write_atomically
from gym.rollouts.ledger import Ledger
from gym.rollouts.options import CollectOptions
from gym.rollouts.source import INPUT_MARK, Prepared
from gym.rollouts.store import LineFile

_ATTEMPTS = b'  "next_attempt": {'
"""How the line begins that the attempts follow, one a line."""
RESUMED_BY = "resumed_by"
"""Key: the runs that went on, in order."""
CHANGED = "changed_on_resume"
"""Key: options and configuration keys that some run changed, which it was allowed to."""

_NEEDED = {"asked", "bad_rows", "config_keys", "expected", "invalid", "positional_rows", "rows", "source", "source_digest", "tasks_digest"}
"""What resuming reads in a manifest."""


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same: who, on what, under which configuration."""

    run_id: str
    config_keys: Mapping[str, str]
    """A digest of each key of the configuration."""


def asked_for(options: CollectOptions) -> dict[str, Any]:
    """The options that make a run what it is; the others may change on resume."""
    return {
        "--limit": options.limit,
        "--num-repeats": options.num_repeats,
        "--env": options.environment,
        "--agent": options.agent,
        "taskset": options.taskset,
        "gym eval reverify": options.reverify or None,
        "--shard": "{}/{}".format(*options.shard) if options.shard is not None else None,
    }


def note_resumed(head: dict[str, Any], run_id: str, changed: list[str]) -> None:
    """Note in a manifest's head that a run went on with it, and what it changed."""
    head[RESUMED_BY] = [*head.get(RESUMED_BY, []), run_id]
    head[CHANGED] = sorted({*head.get(CHANGED, []), *changed})


class Manifest:
    """The manifest of one run and its journal of attempts."""

    def __init__(self, files: OutputFiles, head: dict[str, Any]) -> None:
        """Open the journal of a manifest that is on file. Raises StoreError."""
        self._files, self._head = files, head
        self.journal = LineFile(files.attempts)

    @classmethod
    def begun(cls, files: OutputFiles, identity: Identity, options: CollectOptions, prepared: Prepared) -> "Manifest":
        """Write the manifest of a new run. Raises OSError, StoreError."""
        head = _head(identity, options, prepared)
        write_manifest(files.manifest, head, ())
        return cls(files, head)

    @classmethod
    def resumed(cls, files: OutputFiles, identity: Identity, head: dict[str, Any], changed: list[str]) -> "Manifest":
        """Go on with a manifest that is on file. It stays as it is until the end, and the journal says who went on. Raises StoreError.

        `changed` names what is not as it was.
        """
        note_resumed(head, identity.run_id, changed)
        self = cls(files, head)
        self.journal.write(orjson.dumps({RESUMED_BY: identity.run_id, CHANGED: changed}, option=orjson.OPT_APPEND_NEWLINE))
        return self

    def reserve(self, rollout_id: str, attempt: int) -> None:
        """Note that an attempt is about to be dispatched. Raises StoreError, and then it must not be."""
        self.journal.write(b'{"rollout_id":"%b","attempt":%d}\n' % (rollout_id.encode(), attempt))

    def finish(self, ledger: Ledger) -> None:
        """Write the manifest with the next attempts, and remove the journal. Raises OSError, StoreError."""
        self.journal.close()
        self._head["finished_at"] = _now()
        write_manifest(self._files.manifest, self._head, self._next_attempts(ledger))
        self._files.attempts.unlink(missing_ok=True)

    def _next_attempts(self, ledger: Ledger) -> Iterator[tuple[str, int]]:
        with self._files.materialized.open("rb") as lines:
            for rollout, line in enumerate(lines):
                following = ledger.next_attempt(rollout)
                if following:
                    rollout_id: str = orjson.loads(line[: line.index(INPUT_MARK)] + b"}")[ROLLOUT_ID]
                    yield rollout_id, following


def _head(identity: Identity, options: CollectOptions, prepared: Prepared) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "run_id": identity.run_id,
        "started_at": _now(),
        "finished_at": None,
        "source": options.input.name,
        "source_digest": prepared.source_digest,
        "tasks_digest": prepared.tasks_digest,
        "config_digest": digest_of(identity.config_keys),
        "config_keys": dict(sorted(identity.config_keys.items())),
        "asked": asked_for(options),
        "rows": prepared.rows,
        "bad_rows": prepared.bad_rows,
        "positional_rows": prepared.positional_rows,
        "expected": prepared.expected,
        "invalid": prepared.invalid,
        "num_repeats": options.num_repeats,
        "limit": options.limit,
        "max_rollout_attempts": options.attempts,
        "gym_version": __version__,
        "python_version": platform.python_version(),
        "git_revision": git_revision(INSTALL_ROOT),
        "selection_policy": "latest_reserved",
    }


def read_head(path: Path) -> dict[str, Any]:
    """A manifest without its attempts. Raises UserError if it is none that can be resumed."""
    content = bytearray()
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.startswith(_ATTEMPTS):
                    break
                content += line
        head: object = orjson.loads(bytes(content).rstrip().removesuffix(b",") + b"}")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except orjson.JSONDecodeError:
        head = None
    if not isinstance(head, dict) or not head.keys() >= _NEEDED:
        raise UserError(f"{path} is no manifest of this version, so the run cannot be resumed: choose another --output, or use --overwrite")
    return cast("dict[str, Any]", head)


def read_next_attempts(path: Path) -> Iterator[tuple[str, int]]:
    """The next attempt of each rollout that has had one, by its id. Raises OSError."""
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(_ATTEMPTS):
                break
        for line in lines:
            rollout_id, colon, number = line.strip().rstrip(b",").rpartition(b": ")
            if colon:
                yield rollout_id.strip(b'"').decode(), int(number)


def write_manifest(path: Path, head: dict[str, Any], next_attempts: Iterable[tuple[str, int]]) -> None:
    """Replace the manifest at `path`. Raises OSError."""
    entries = (b'    "%b": %d' % (rollout_id.encode(), following) for rollout_id, following in next_attempts)
    write_atomically(path, _parts(orjson.dumps(head, option=orjson.OPT_INDENT_2)[:-2], entries))


def _parts(opening: bytes, entries: Iterator[bytes]) -> Iterator[bytes]:
    yield opening + b",\n" + _ATTEMPTS
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
