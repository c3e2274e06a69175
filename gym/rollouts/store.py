"""Files of lines that survive: one writer, whole lines only.

Invariant: what is in the file is a sequence of whole lines. A write that fails half-way (a full
disk, a quota, a size limit) is cut back to the last whole line before the error is raised, and
after an error nothing more is written. Durability is by `sync`, which the collector calls by interval and at the end.
"""

import os
from pathlib import Path

from gym.config.errors import UserError
from gym.journal import append_whole


class StoreError(UserError):
    """A result could not be written; the run must stop, for its results have nowhere to go."""


def cut_torn_line(path: Path) -> int:
    """Cut what follows the last newline: a line that a killed writer did not finish. Return its bytes; 0 also where there is no file.

    Raises OSError.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        while start:
            block = min(start, 1 << 16)
            start -= block
            file.seek(start)
            newline = file.read(block).rfind(b"\n")
            if newline >= 0:
                start += newline + 1
                break
        if start != end:
            file.truncate(start)
        return end - start


class LineFile:
    """An append-only file of lines, of which this process is the only writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._broken = False
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None
        self._dirty = False

    def write(self, line: bytes) -> None:
        """Append one line, which must end in a newline. Raises StoreError, and then the file ends in the line before."""
        if self._broken:
            raise StoreError(f"{self.path} could not be written before; nothing more is written to it")
        try:
            append_whole(self._descriptor, line)
        except OSError as error:
            self._broken = True
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror or error}; the rows written so far ({self._size} bytes) are whole"
            ) from error
        self._size += len(line)
        self._dirty = True

    def sync(self) -> None:
        """Bring everything written so far to the disk. Safe to call from another thread. Raises StoreError."""
        if not self._dirty:
            return
        self._dirty = False
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be synced to disk: {error.strerror or error}") from error

    def close(self) -> None:
        """Sync and close. Raises StoreError; the file is closed in any case."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)
