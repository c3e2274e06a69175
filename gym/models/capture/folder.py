"""The capture files of one model server: `<capture key>.jsonl` in a folder of the run, written as calls are made.

Invariant: a file holds whole lines, but for the last one of a process that died while it wrote. Lines are handed to the
operating system and not synced: what was written survives the process, and not a power failure. At most so many files are
held open. Whoever removes the run's folder removes them; a folder that is gone is not made anew. Only one process at a
time writes into a folder, so that what is in it is looked up once, and remembered.
"""

import contextlib
import os
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path

from gym.journal import append_whole

_OPEN_FILES = 128
_LONGEST_NAME = 200
"""Bytes; file systems take 255, and something comes after it."""


def file_name(capture_key: str) -> str:
    """The name of a rollout's capture file. A key that is too long for a file system is cut, and stays unique."""
    if len(capture_key) > _LONGEST_NAME:
        capture_key = f"{capture_key[: _LONGEST_NAME - 33]}~{blake2b(capture_key.encode(), digest_size=16).hexdigest()}"
    return f"{capture_key}.jsonl"


class CaptureFolder:
    """Files by capture key. All methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: OrderedDict[str, int] = OrderedDict()
        self._names: set[str] | None = None

    def append(self, key: str, line: bytes) -> None:
        """Add a line, whole or not at all."""
        file = self._open.get(key)
        if file is None:
            file = self._opened(key)
        else:
            self._open.move_to_end(key)
        append_whole(file, line)

    def lines(self, key: str) -> bytes | None:
        """What there is of a rollout; None if there is nothing."""
        if file_name(key) not in self._present():
            return None
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, key: str) -> None:
        """Remove what there is of a rollout."""
        file = self._open.pop(key, None)
        if file is not None:
            os.close(file)
        for path in (self._file(key), self._mark(key)):
            if path.name in self._present():
                path.unlink(missing_ok=True)
                self._present().discard(path.name)

    def mark_incomplete(self, key: str) -> None:
        """Leave a mark, for another process, that something could not be written; a full disk often takes an empty file."""
        mark = self._mark(key)
        with contextlib.suppress(OSError):
            mark.touch(0o600)
            self._present().add(mark.name)

    def marked_incomplete(self, key: str) -> bool:
        """Whether there is such a mark."""
        return self._mark(key).name in self._present()

    def close(self) -> None:
        """Let go of all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _opened(self, key: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            file = os.open(self._file(key), flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(exist_ok=True)
            self.path.mkdir(exist_ok=True)
            file = os.open(self._file(key), flags, 0o600)
        self._present().add(file_name(key))
        self._open[key] = file
        if len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return file

    def _present(self) -> set[str]:
        """The names of the files that are there."""
        if self._names is None:
            try:
                self._names = {path.name for path in self.path.iterdir()}
            except FileNotFoundError:
                self._names = set()
        return self._names

    def _file(self, key: str) -> Path:
        return self.path / file_name(key)

    def _mark(self, key: str) -> Path:
        return self._file(key).with_suffix(".incomplete")
