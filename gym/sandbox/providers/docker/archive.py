"""Files as the engine moves them: one-file tar streams, made and read without loading more than needed.

Invariant: bytes survive, and what a hostile sandbox puts into a tar is never unpacked onto our disk.
"""

import asyncio
import tarfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from gym.sandbox.spec import SandboxFileError

_PIECE = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
_END = b"\0" * (2 * _BLOCK)
_RECORDS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


async def tar_of(files: Mapping[str, bytes], mode: int = 0o644) -> AsyncIterator[bytes | memoryview]:
    """A tar of files by absolute path, to be unpacked at the root; piece by piece, as a large one must not hold up the event loop."""
    for path, content in files.items():
        yield _header(path, len(content), mode)
        view = memoryview(content)
        for start in range(0, len(content), _PIECE):
            yield view[start : start + _PIECE]
        yield b"\0" * (-len(content) % _BLOCK)
    yield _END


async def tar_stream(path: str, source: Path, mode: int) -> AsyncIterator[bytes]:
    """A tar of one file of ours, read piece by piece; OSError if it shrinks meanwhile."""
    with await asyncio.to_thread(source.open, "rb") as file:
        size = (await asyncio.to_thread(source.stat)).st_size
        yield _header(path, size, mode)
        left = size
        while left:
            piece = await asyncio.to_thread(file.read, min(_PIECE, left))
            if not piece:
                raise OSError(f"{source} became shorter while it was read")
            left -= len(piece)
            yield piece
        yield b"\0" * (-size % _BLOCK) + _END


class OnlyFile:
    """Takes the content of the one regular file out of a tar that the engine sends for `path`."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._head = bytearray()
        self._skip = 0
        """Bytes of a record that says more about the file (a long name, times) which are passed over."""
        self._left: int | None = None
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises SandboxFileError for what is no regular file, or is longer than allowed."""
        while data and self._left is None:
            if self._skip:
                passed = min(self._skip, len(data))
                self._skip -= passed
                data = data[passed:]
                continue
            wanted = _BLOCK - len(self._head)
            self._head += data[:wanted]
            data = data[wanted:]
            if len(self._head) == _BLOCK:
                self._begin()
        if self._left:
            self._pieces.append(data[: self._left] if len(data) > self._left else data)
            self._left -= len(self._pieces[-1])

    def _begin(self) -> None:
        try:
            member = tarfile.TarInfo.frombuf(bytes(self._head), "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise SandboxFileError(f"{self._path!r} in the sandbox could not be read: {error}") from error
        self._head.clear()
        if member.type in _RECORDS:
            self._skip = member.size + -member.size % _BLOCK
            return
        if not member.isreg():
            raise SandboxFileError(f"{self._path!r} in the sandbox is not a regular file")
        if member.size > self._max_bytes:
            raise SandboxFileError(f"{self._path!r} in the sandbox has {member.size} bytes, more than the {self._max_bytes} allowed here")
        self._left = member.size

    async def content(self) -> bytes:
        """The file, once everything came; put together in a thread. Raises SandboxFileError if something is missing."""
        if self._left != 0:
            raise SandboxFileError(f"{self._path!r} in the sandbox could not be read: the engine sent only a part of it")
        return await asyncio.to_thread(b"".join, self._pieces)


def _header(path: str, size: int, mode: int) -> bytes:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size = size
    member.mode = mode
    member.mtime = int(time.time())
    return member.tobuf(format=tarfile.PAX_FORMAT)
