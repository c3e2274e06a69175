"""Moves files into and out of one engine's containers, as bytes.

Two ways: the engine's archive calls, which need nothing in the image and also read from a
container that has stopped; and a command with the bytes on its standard streams, for containers
with tmpfs mounts or a read-only root, which the archive calls cannot see or refuse.
"""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from gym.sandbox.providers.docker.archive import OnlyFile, tar_of, tar_stream
from gym.sandbox.providers.docker.engine import Engine, EngineError, name_in_path
from gym.sandbox.providers.docker.execution import Command, Commands, Outcome
from gym.sandbox.providers.docker.memory import MemoryWatch
from gym.sandbox.providers.docker_options import DockerCopy
from gym.sandbox.spec import SandboxError, SandboxFileError, SandboxGoneError

_WRITE = 'mkdir -p -- "$1" && rm -rf -- "$2" && head -c "$3" >"$2" && chmod "$4" "$2"'
_WRITE_EMPTY = 'mkdir -p -- "$1" && rm -rf -- "$2" && : >"$2" && chmod "$4" "$2"'
_READ = '[ -e "$1" ] || exit 3; [ -f "$1" ] || exit 4; exec head -c "$2" -- "$1"'
_MISSING, _NOT_REGULAR = 3, 4
_NOT_STARTED, _KILLED = 126, 128
"""What a command ends with that could not be started, as where no more processes are allowed; and more than which one that was killed."""
_DIRECTORY, _SYMLINK = 1 << 31, 1 << 27  # bits of the mode as the engine (Go) writes it
_SPECIAL = _DIRECTORY | _SYMLINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21


class Files:
    """File moves through one engine. `by_command` of each call says which way to go."""

    def __init__(self, engine: Engine, commands: Commands, memory: MemoryWatch, options: DockerCopy) -> None:
        self._engine = engine
        self._memory = memory
        self._commands = commands
        self._timeout_s = options.timeout_s
        self._slots = asyncio.Semaphore(options.concurrency)

    async def put(self, container: str, files: Mapping[str, bytes], mode: int, *, by_command: bool) -> None:
        """Write small files by absolute path, all in one call where the engine's archives do."""
        async with self._slots:
            if by_command:
                for path, content in files.items():
                    await self._put_by_command(container, path, content, mode)
            else:
                await self._put_archive(container, tar_of(files, mode))

    async def put_file(self, container: str, path: str, source: Path, mode: int, *, by_command: bool) -> None:
        """Write one file of ours, read piece by piece."""
        if not await asyncio.to_thread(source.is_file):
            raise SandboxFileError(f"cannot upload {str(source)!r}: it is not a file here")
        async with self._slots:
            if by_command:
                await self._put_by_command(container, path, await asyncio.to_thread(source.read_bytes), mode)
            else:
                await self._put_archive(container, tar_stream(path, source, mode))

    async def get(self, container: str, path: str, max_bytes: int, *, by_command: bool) -> bytes:
        """The content of one regular file; a symbolic link is followed inside the container."""
        async with self._slots:
            if by_command:
                return await self._get_by_command(container, path, max_bytes)
            return await self._get_archive(container, path, max_bytes)

    async def _put_archive(self, container: str, data: Any) -> None:
        url = f"/containers/{name_in_path(container)}/archive"
        headers = {"Content-Type": "application/x-tar"}
        try:
            await self._engine.request("PUT", url, params={"path": "/"}, data=data, headers=headers, timeout_s=self._timeout_s)
        except EngineError as error:
            raise self._translated(error, container, "upload failed") from error

    async def _get_archive(self, container: str, path: str, max_bytes: int) -> bytes:
        url = f"/containers/{name_in_path(container)}/archive"
        try:
            _, headers = await self._engine.request("HEAD", url, params={"path": path}, timeout_s=self._timeout_s)
            stat = _stat(headers)
            if stat.get("mode", 0) & _SYMLINK:
                path = str(stat["linkTarget"])
                _, headers = await self._engine.request("HEAD", url, params={"path": path}, timeout_s=self._timeout_s)
                stat = _stat(headers)
            # Asked first, because the engine would send a whole folder.
            if stat.get("mode", 0) & _SPECIAL:
                raise SandboxFileError(f"{path!r} in the sandbox is not a regular file")
            if stat.get("size", 0) > max_bytes:
                raise _too_long(path, max_bytes)
            file = OnlyFile(path, max_bytes)
            await self._engine.request("GET", url, params={"path": path}, timeout_s=self._timeout_s, into=file.feed)
        except EngineError as error:
            if error.status == 404 and not await self._gone(container):
                raise SandboxFileError(f"there is no file {path!r} in the sandbox") from error
            raise self._translated(error, container, f"download of {path!r} failed") from error
        return await file.content()

    async def _gone(self, container: str) -> bool:
        try:
            await self._engine.request("GET", f"/containers/{name_in_path(container)}/json")
        except EngineError as error:
            return error.status == 404
        return False

    async def _put_by_command(self, container: str, path: str, data: bytes, mode: int) -> None:
        script = _WRITE if data else _WRITE_EMPTY
        outcome = await self._shell(container, script, [str(PurePosixPath(path).parent), path, str(len(data)), f"{mode:o}"], stdin=data)
        if outcome.code != 0 or outcome.error_type:
            raise await self._command_failed(outcome, container, f"upload of {path!r} failed")

    async def _get_by_command(self, container: str, path: str, max_bytes: int) -> bytes:
        outcome = await self._shell(container, _READ, [path, str(max_bytes + 1)], limit=max_bytes + 1)
        if outcome.error_type is None and outcome.code in (_MISSING, _NOT_REGULAR):
            missing = outcome.code == _MISSING
            raise SandboxFileError(
                f"there is no file {path!r} in the sandbox" if missing else f"{path!r} in the sandbox is not a regular file"
            )
        if outcome.code != 0 or outcome.error_type:
            raise await self._command_failed(outcome, container, f"download of {path!r} failed")
        if outcome.stdout.total > max_bytes:
            raise _too_long(path, max_bytes)
        return await asyncio.to_thread(outcome.stdout.content)

    async def _shell(self, container: str, script: str, args: list[str], *, limit: int = 64 * 1024, stdin: bytes | None = None) -> Outcome:
        argv = ["/bin/sh", "-c", script, "sh", *args]
        return await self._commands.run(Command(container, argv, self._timeout_s, limit, cwd="/", user="0", stdin=stdin))

    def _lost(self, container: str, why: str) -> SandboxError:
        """A sandbox that is no more, and whether that is for want of memory."""
        if self._memory.ended(container):
            return SandboxGoneError(f"{why}: it ran out of memory", "provider_oom_killed")
        return SandboxGoneError(why)

    def _translated(self, error: EngineError, container: str, what: str) -> SandboxError:
        if error.status == 404:
            return self._lost(container, f"{what}: sandbox {container} is gone")
        return SandboxError(f"{what} in sandbox {container}: {error}", error.kind)

    async def _command_failed(self, outcome: Outcome, container: str, what: str) -> SandboxError:
        said = (await outcome.reason()).strip() or f"exit code {outcome.code}"
        if outcome.error_type == "sandbox":
            return self._lost(container, f"{what}: {said}")
        if outcome.error_type == "timeout" or outcome.code == _NOT_STARTED or outcome.code > _KILLED:  # this says nothing of the file
            return SandboxError(f"{what} in sandbox {container}: {said}", "provider_unavailable")
        return SandboxFileError(f"{what}: {said}")


def _stat(headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        return orjson.loads(base64.b64decode(headers["X-Docker-Container-Path-Stat"]))
    except (KeyError, ValueError) as error:
        raise SandboxError("the docker engine told nothing about a file in the sandbox") from error


def _too_long(path: str, max_bytes: int) -> SandboxFileError:
    return SandboxFileError(f"{path!r} in the sandbox is longer than the {max_bytes} bytes allowed here")
