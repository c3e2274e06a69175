"""One collector per output: an advisory lock on `<stem>_run.lock`.

The file is never removed: removing it would let two collectors lock two files of the same name.
The kernel drops the lock with the process, so a killed collector leaves nothing to clean up.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import orjson

from gym.config.errors import UserError


def refuse_locked(path: Path) -> None:
    """Raise UserError if a collector holds the lock at `path` now; nothing is made or kept."""
    if path.exists():
        with run_lock(path, told=False):
            pass


@contextmanager
def run_lock(path: Path, *, told: bool = True) -> Generator[None]:
    """Hold the lock at `path`, with our name in it if `told`. Raises UserError if another collector does, or the lock cannot be made."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"the output cannot be written: {path}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another collector{_holder(descriptor)} is writing this output (lock {path}): wait, or stop it") from None
        except OSError as error:
            raise UserError(f"the lock {path} cannot be taken ({error.strerror or error}): write to a local disk") from None
        if told:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, orjson.dumps({"pid": os.getpid(), "host": os.uname().nodename}) + b"\n", 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        holder = orjson.loads(os.pread(descriptor, 4096, 0))
        return f" (process {holder['pid']} on {holder['host']})"
    except (ValueError, KeyError, TypeError, OSError):
        return ""
