"""Logging of our processes: one line per record, credentials blotted out at the source."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gym.config.schema import Settings
from gym.protocol.errors import redacted


class RedactingFormatter(logging.Formatter):
    """`<UTC time> <level> <logger> <message>`; `secrets` are replaced wherever they stand."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._second = (-1, "")
        self._secrets = [secret for secret in secrets if len(secret) >= 6]

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The UTC time in milliseconds; what is before them is made once a second."""
        del datefmt  # there is one form
        second = int(record.created)
        if second != self._second[0]:
            self._second = second, time.strftime(self.default_time_format, time.gmtime(second))
        return f"{self._second[1]}.{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line (a traceback follows on lines of its own)."""
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text if record.name == "gym.access" else redacted(text)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what stderr is now: while a live view is drawn, that puts lines above it."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None: ...


def log_to_stderr(level: int, secrets: Sequence[str] = ()) -> None:
    """Send every record of this process to stderr."""
    _install(_Stderr(), level, secrets)


def leave_out_whereabouts() -> None:
    """Have records made without thread, process, task and line of code: no line of ours shows them, and looking them up costs much."""
    for setting in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, setting, False)
    # No look at the stack either; both are in the logging HOWTO under "Optimization".
    setattr(logging, "_srcfile", None)  # noqa: B010


def log_colocated(settings: Settings) -> None:
    """Logging of a process that all servers share: everything to `<log_dir>/gym.log` if that is set, else warnings to stderr."""
    secrets = [settings.policy_api_key or ""]
    if settings.log_dir is None:
        log_to_stderr(logging.WARNING, secrets)
        return
    settings.log_dir.mkdir(parents=True, exist_ok=True)
    _install(logging.FileHandler(settings.log_dir / "gym.log"), logging.INFO, secrets)


def _install(handler: logging.Handler, level: int, secrets: Sequence[str]) -> None:
    handler.setFormatter(RedactingFormatter(secrets))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def tail(path: Path, lines: int = 20, limit: int = 16_384) -> list[str]:
    """The last lines of a log file; an unreadable one has none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def log_folder(run_folder: Path) -> Path:
    """Where the logs of a run are: in its folder, or where its `logs` link points."""
    return run_folder / "logs"


def follow_file(path: Path, poll_seconds: float = 0.2) -> Iterator[str]:
    """The lines that are added to a file from now on, until it is removed."""
    with path.open(errors="replace") as file:
        file.seek(0, 2)
        rest = ""
        while True:
            text = file.read()
            if text:
                *whole, rest = (rest + text).split("\n")
                yield from whole
            elif path.exists():
                time.sleep(poll_seconds)
            else:
                return
