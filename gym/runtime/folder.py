"""The folder of one run: where its processes find each other, and where its logs are.

`<state>/runs/<run id>/` holds `run.json` (who runs it and where its head answers), `token`,
one file per instance, journals and logs; everything is readable by its owner only. Invariant: after
a clean stop nothing is left of it; after a crash only the logs are. What a run that was killed left
is cleared by the last of its servers, or else by the next run, and its logs after a week. Where a
sandbox of it may still exist, its lease journal stays until that is released.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from gym.config.errors import UserError
from gym.sandbox.leases import LeaseFolder

_OWNER = "owner.json"
_HELD = "held"
_LEASES = "leases"
_KEEP_LOGS_SECONDS = 7 * 86_400


def state_root() -> Path:
    """Where runs keep their folders: $GYM_STATE_DIR, else the user's XDG state folder."""
    own = os.environ.get("GYM_STATE_DIR")
    if own:
        return Path(own)
    xdg = os.environ.get("XDG_STATE_HOME")
    return Path(xdg) / "gym" if xdg else Path.home() / ".local" / "state" / "gym"


@dataclass(frozen=True)
class RunRecord:
    """What `run.json` says. `pid_started` guards against a reused pid."""

    run_id: str
    pid: int
    pid_started: float
    head_url: str
    started: float
    configs: list[str]


class RunFolder:
    """The folder of one run that this process owns."""

    def __init__(self, run_id: str | None = None, log_dir: Path | None = None) -> None:
        self.run_id = run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        self.path = state_root() / "runs" / self.run_id
        self.logs = log_dir.absolute() if log_dir else self.path / "logs"
        if log_dir:
            try:
                self.logs.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"cannot make the log folder {self.logs}: {error.strerror}; choose another --log-dir") from error
        try:
            self.path.mkdir(parents=True, mode=0o700)
            self.logs.mkdir(parents=True, exist_ok=True)
            if log_dir:
                (self.path / "logs").symlink_to(self.logs)
            self.write_private(_OWNER, orjson.dumps([os.getpid(), _pid_started(os.getpid())]))
            clear_dead_runs()
        except OSError as error:
            advice = "set GYM_STATE_DIR to a folder that can be written"
            raise UserError(f"cannot make the run's folder {self.path}: {error.strerror}; {advice}") from error

    def write_private(self, name: str, data: bytes) -> Path:
        """Write a file that only its owner can read, whole or not at all."""
        path = self.path / name
        fresh = path.with_name(path.name + ".tmp")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
        return path

    def log_path(self, instance: str) -> Path:
        """The log file of one instance."""
        return self.logs / f"{instance}.log"

    def announce(self, head_url: str, configs: list[str]) -> None:
        """Let other commands of this user find the run."""
        record = RunRecord(self.run_id, os.getpid(), _pid_started(os.getpid()), head_url, time.time(), configs)
        self.write_private("run.json", orjson.dumps(asdict(record)))

    @property
    def leases(self) -> LeaseFolder:
        """The leases of the run's sandboxes."""
        return LeaseFolder(self.path)

    def remove(self, *, keep_logs: bool) -> None:
        """Remove the folder, but for leases that are owed; with `keep_logs` all but the logs."""
        if self.path.is_dir():
            _clear(self.path, keep_logs=keep_logs and self.logs.parent == self.path)


def _clear(path: Path, *, keep_logs: bool) -> None:
    """Remove a run's folder, but for its logs, and what tells that it owes sandboxes."""
    kept = {"logs"} if keep_logs else set[str]()
    if LeaseFolder(path).owed():
        kept |= {_LEASES, _OWNER}
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)
        elif entry.name not in kept:
            entry.unlink(missing_ok=True)
    if not any(path.iterdir()):
        with contextlib.suppress(OSError):
            path.rmdir()


def hold(path: Path) -> int | None:
    """Say, until this process ends, that a run's folder is in use; for its servers. None if that cannot be said."""
    try:
        held = os.open(path / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_SH)
    except OSError:
        return None
    return held


def leave(path: Path, held: int | None, release: Callable[[LeaseFolder], None]) -> None:
    """If this was the last server to hold the folder of a run whose parent is dead, `release` what is owed, and clear it."""
    if held is None:
        return
    with contextlib.suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leases = LeaseFolder(path)
        if leases.owed():
            release(leases)
        _clear(path, keep_logs=True)


def _is_held(path: Path) -> bool:
    """Whether a server of the run is still there, if only to end."""
    try:
        with (path / _HELD).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def lease_folders() -> list[LeaseFolder]:
    """The leases of all runs of this user that have any, whether they live or not."""
    return [LeaseFolder(path.parent) for path in sorted((state_root() / "runs").glob(f"*/{_LEASES}"))]


def clear_dead_runs() -> None:
    """Clear what runs whose process is gone have left; one that cannot be read is left alone."""
    for path in (state_root() / "runs").iterdir():
        with contextlib.suppress(OSError, ValueError, TypeError):
            if (path / _OWNER).exists():
                pid, started = orjson.loads((path / _OWNER).read_bytes())
                if not _alive(pid, started) and not _is_held(path):
                    _clear(path, keep_logs=True)
            elif time.time() - path.stat().st_mtime > _KEEP_LOGS_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _pid_started(pid: int) -> float:
    """When a process began, in seconds since the epoch; 0 for one that has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return 0.0


def _alive(pid: int, started: float) -> bool:
    return abs(_pid_started(pid) - started) < 1


def live_runs() -> list[tuple[RunRecord, Path]]:
    """The runs of this user whose process is alive, oldest first, each with its folder."""
    found: list[tuple[RunRecord, Path]] = []
    for path in sorted((state_root() / "runs").glob("*/run.json")):
        try:
            record = RunRecord(**orjson.loads(path.read_bytes()))
        except (OSError, orjson.JSONDecodeError, TypeError):
            continue
        if _alive(record.pid, record.pid_started):
            found.append((record, path.parent))
    return sorted(found, key=lambda pair: pair[0].started)
