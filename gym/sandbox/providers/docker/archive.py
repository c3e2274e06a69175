"""Files as the engine moves them: one-file tar streams, made and read without loading more than needed.

Invariant: bytes survive, and what a hostile sandbox puts into a tar is never unpacked onto our disk.
"""

import asyncio
import io
import tarfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from gym.sandbox.spec import SandboxFileError

_PIECE = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE


def tar_of(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """A tar of small files by absolute path, to be unpacked at the root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            tar.addfile(_member(path, len(content), mode), io.BytesIO(content))
    return buffer.getvalue()


async def tar_stream(path: str, source: Path, mode: int) -> AsyncIterator[bytes]:
    """A tar of one file of ours, read piece by piece; OSError if it shrinks meanwhile."""
    with await asyncio.to_thread(source.open, "rb") as file:
        size = (await asyncio.to_thread(source.stat)).st_size
        yield _member(path, size, mode).tobuf(format=tarfile.PAX_FORMAT)
        left = size
        while left:
            piece = await asyncio.to_thread(file.read, min(_PIECE, left))
            if not piece:
                raise OSError(f"{source} became shorter while it was read")
            left -= len(piece)
            yield piece
        yield b"\0" * (-size % _BLOCK + 2 * _BLOCK)


def only_file(path: str, archive: bytes, max_bytes: int) -> bytes:
    """The content of the one regular file in a tar that the engine gave for `path`."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            member = tar.next()
            if member is None or not member.isreg():
                raise SandboxFileError(f"{path!r} in the sandbox is not a regular file")
            if member.size > max_bytes:
                raise SandboxFileError(f"{path!r} in the sandbox has {member.size} bytes, more than the {max_bytes} allowed here")
            file = tar.extractfile(member)
            return file.read() if file else b""
    except tarfile.TarError as error:
        raise SandboxFileError(f"{path!r} in the sandbox could not be read: {error}") from error


def _member(path: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size = size
    member.mode = mode
    member.mtime = int(time.time())
    return member
