"""The folder of one run: where its processes find each other, and where its logs are.

`<state>/runs/<run id>/` holds `run.json` (who runs it and where its head answers), `token`,
one file per instance, journals and logs; everything is readable by its owner only. Invariant: after
a clean stop nothing is left of it; after a crash only the logs are. What a run that was killed left
is cleared by the next one, and its logs after a week.
"""

import contextlib
import os
import secrets
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from gym.config.errors import UserError

_OWNER = "owner.json"
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
            _clear_dead_runs()
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

    def remove(self, *, keep_logs: bool) -> None:
        """Remove the folder; with `keep_logs` all but the logs."""
        if not keep_logs or self.logs.parent != self.path:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self.path.is_dir():
            _clear(self.path)


def _clear(path: Path) -> None:
    """Remove all of a run's folder but its logs."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            if entry.name != "logs":
                shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _clear_dead_runs() -> None:
    """Clear what runs whose process is gone have left; one that cannot be read is left alone."""
    for path in (state_root() / "runs").iterdir():
        with contextlib.suppress(OSError, ValueError, TypeError):
            if (path / _OWNER).exists():
                pid, started = orjson.loads((path / _OWNER).read_bytes())
                if not _alive(pid, started):
                    _clear(path)
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
