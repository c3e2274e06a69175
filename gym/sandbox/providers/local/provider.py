"""The `local` provider: sandboxes made, found, lent and ended on this host, for one user.

Invariant: a create that fails or is cancelled leaves nothing, and only folders that carry our label
are connected to or swept. Nothing runs without namespaces unless the block says `unconfined`.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from gym.sandbox.cleanup import finish
from gym.sandbox.limits import Host, clamp
from gym.sandbox.ownership import INSTANCE, RUN_ID, Ownership
from gym.sandbox.provider import MAX_DOWNLOAD_BYTES, Capabilities, HostView, SandboxHandle, check_capabilities, mark_doubtful
from gym.sandbox.providers.local import channel, folders
from gym.sandbox.providers.local.cgroups import Cgroups
from gym.sandbox.providers.local.confinement import plan
from gym.sandbox.providers.local_options import NAME, LocalOptions
from gym.sandbox.spec import (
    ExecResult,
    SandboxError,
    SandboxFileError,
    SandboxGoneError,
    SandboxRecord,
    SandboxResources,
    SandboxSpec,
    SandboxSpecError,
    SandboxStatus,
    check_env,
)

log = logging.getLogger(__name__)

_END_BOUND_S = 110.0
"""Below the 120 s of a stop, so that our own words reach the caller."""

_PIECE = 1 << 20
_KEEPER = Path(__file__).with_name("keeper.py")
_HINT = (
    "unprivileged user namespaces must be allowed (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
    " kernel.apparmor_restrict_unprivileged_userns; in a container, its seccomp profile),"
    " or `unconfined: true` set for commands that you trust"
)


@dataclass
class LocalHandle(SandboxHandle):
    """A sandbox, known by its folder."""

    folder: Path = Path("/nonexistent")


class LocalProvider:
    """Sandboxes as Linux namespaces on this host."""

    def __init__(self, options: LocalOptions, default_metadata: Mapping[str, str] | None = None) -> None:
        self.name = NAME
        self.networks = None
        self._options = options
        self._metadata = dict(default_metadata or {})
        self._root = options.root.absolute() if options.root else folders.default_root()
        self._cgroups = Cgroups()
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self._creating = asyncio.Semaphore(options.create.concurrency)
        self.capabilities = Capabilities(
            connect=True,
            images=False,
            network=not options.unconfined,
            users=False,
            ports=False,
            snapshots=False,
            limits=self._cgroups.available(),
            advisory=frozenset({"disk_gib"}),
        )
        if options.unconfined:
            log.warning("sandbox provider %s is unconfined: commands run as this user, and can read and change whatever it can", NAME)

    @property
    def place(self) -> str:
        """The folder of the sandboxes and its machine: two providers with the same place see the same sandboxes."""
        return f"local {self._root} on {socket.gethostname()}"

    @property
    def parts(self) -> "tuple[LocalProvider]":
        """Itself."""
        return (self,)

    async def host_view(self, run_id: str) -> HostView:
        """Our loopback for sandboxes that share our network; nothing for others."""
        if self._options.unconfined or self._options.create.network == "host":
            return HostView("127.0.0.1", "127.0.0.1")
        return HostView(why_not="its network is 'none'; with 'host' they reach this machine's loopback")

    async def create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> LocalHandle:
        """Make a sandbox that is ready for commands. If this raises or is cancelled, nothing is left of it."""
        if not folders.is_sandbox_id(sandbox_id):
            raise SandboxSpecError(f"{sandbox_id!r} is no sandbox id: use new_sandbox_id()")
        check_capabilities(self.name, self.capabilities, spec)
        limits, clamped = clamp(spec, _host())
        ttl_s = spec.ttl_s or self._options.create.default_ttl_s
        folder = self._root / sandbox_id
        config = await asyncio.to_thread(plan, spec, self._options, folder, ttl_s)
        labels = ownership.labels(ttl_s, self._metadata | spec.metadata)
        async with self._creating:
            began = time.monotonic()
            # In one piece: a folder is never without somebody who holds its lock, or removes it.
            starting = asyncio.ensure_future(asyncio.to_thread(self._start, sandbox_id, config, labels, limits))
            try:
                keeper = await asyncio.shield(starting)
                said = await asyncio.to_thread(_said, keeper)
                if said != "ready":
                    raise SandboxError(_explained(sandbox_id, said, self._options.unconfined))
                handle = LocalHandle(sandbox_id, config["supervisor"]["workdir"], folder=folder)
                for path, content in spec.files.items():
                    await self.upload(handle, path, content.encode() if isinstance(content, str) else content)
            except BaseException as error:
                if not await self._undo(starting, folder):
                    mark_doubtful(error)
                raise
        handle.observations |= {
            "ttl_s": ttl_s,
            "limits": limits.model_dump(exclude_none=True),
            "confined": not self._options.unconfined,
            "create_s": round(time.monotonic() - began, 3),
        }
        if clamped:
            handle.observations["clamped"] = clamped
        return handle

    def _start(
        self, sandbox_id: str, config: dict[str, Any], labels: dict[str, str], limits: SandboxResources
    ) -> "subprocess.Popen[bytes]":
        folder, lock = folders.make(self._root, sandbox_id, labels, config["tops"], config["uid"])
        try:
            groups = [str(group) for group in self._cgroups.make(sandbox_id, limits)]
            (folder / "cgroups.json").write_text(json.dumps(groups))
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[lock],
                start_new_session=True,
                cwd="/",
            )
            self._keepers[sandbox_id] = keeper
            assert keeper.stdin is not None
            with keeper.stdin as stdin:
                stdin.write(json.dumps({**config, "cgroups": groups}).encode())
        except OSError as error:
            raise SandboxError(f"sandbox {sandbox_id} could not be started: {error}") from error
        finally:
            os.close(lock)
        return keeper

    async def _undo(self, starting: "asyncio.Future[subprocess.Popen[bytes]]", folder: Path) -> bool:
        """Take back a create; False if something may be left."""

        async def take_back() -> None:
            try:
                await starting
            except SandboxSpecError:
                return  # the id is somebody else's
            except SandboxError:
                pass
            await asyncio.to_thread(self._end, folder)

        try:
            await finish(take_back(), _END_BOUND_S)
        except (TimeoutError, SandboxError) as error:
            log.warning("sandbox %s may be left over from a failed create: %s", folder.name, error)
            return False
        except asyncio.CancelledError as cancelled:
            mark_doubtful(cancelled)  # cancelled once more meanwhile: how it ended is not known here
            raise
        return True

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        max_output_bytes: int | None = None,
        output_file: Path | None = None,
    ) -> ExecResult:
        """Run a shell command; see `Provider.exec`."""
        box = _local(handle)
        options = self._options.exec
        if user is not None:
            raise SandboxSpecError(f"sandbox provider {self.name!r} cannot give user {user!r}: all commands of a sandbox run as the same")
        if "\0" in command:
            raise SandboxSpecError("a command cannot hold a NUL")
        if timeout_s is not None and timeout_s <= 0:
            raise SandboxSpecError(f"timeout_s is {timeout_s:g}: give a positive number of seconds, or None for the default")
        try:
            checked = check_env(dict(env or {}))
        except ValueError as error:
            raise SandboxSpecError(str(error)) from error
        request = {"op": "exec", "command": command, "cwd": cwd or box.workdir, "env": checked}
        limit = max_output_bytes or options.max_output_bytes
        before = self._cgroups.oom_kills(box.sandbox_id)
        asked = channel.Command(box.folder, request, stdin, timeout_s or options.default_timeout_s, limit, output_file)
        result = await channel.run(asked)
        return replace(result, oom_killed=True) if self._cgroups.oom_kills(box.sandbox_id) > before else result

    async def upload(self, handle: SandboxHandle, path: str, data: bytes | Path, *, mode: int = 0o644) -> None:
        """Write a file in the sandbox; missing folders are made."""
        box = _local(handle)
        await asyncio.to_thread(_upload, box.folder, _target(path), data, mode)

    async def download(self, handle: SandboxHandle, path: str, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> bytes:
        """Read a regular file of the sandbox."""
        box = _local(handle)
        return await asyncio.to_thread(_download, box.folder, _target(path), max_bytes)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Whether the sandbox's keeper lives."""
        return await asyncio.to_thread(folders.status, self._folder(handle))

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox and remove its tree; one that is gone already is well. A handle that only names it will do."""
        await asyncio.to_thread(self._end, self._folder(handle))

    def serialize(self, handle: SandboxHandle) -> dict[str, Any]:
        """The descriptor that `connect` takes, in any process of the same user on this host."""
        box = _local(handle)
        return {"provider": self.name, "sandbox_id": box.sandbox_id, "root": str(box.folder.parent)}

    async def connect(self, descriptor: Mapping[str, Any]) -> LocalHandle:
        """A handle to a running sandbox of ours; SandboxGoneError if there is none."""
        sandbox_id, root = descriptor.get("sandbox_id"), descriptor.get("root", str(self._root))
        if not isinstance(sandbox_id, str) or not isinstance(root, str) or descriptor.get("provider", self.name) != self.name:
            raise SandboxError(f"this descriptor is not one of a local sandbox: it names {sorted(descriptor)}", "protocol_violation")
        folder = Path(root) / sandbox_id
        if not folders.is_sandbox_id(sandbox_id) or not folder.is_absolute():
            raise SandboxError(f"{sandbox_id!r} in {root!r} is not a sandbox of ours", "protocol_violation")
        return await asyncio.to_thread(_connected, folder)

    async def find(self, *, run_id: str | None = None, instance: str | None = None) -> list[SandboxRecord]:
        """All sandboxes below our root with these labels, dead ones included."""
        wanted = {label: value for label, value in ((RUN_ID, run_id), (INSTANCE, instance)) if value is not None}
        return await asyncio.to_thread(folders.find, self._root, wanted)

    async def sweep(self, *, run_id: str, instance: str | None = None) -> list[str]:
        """End all sandboxes of a run, or of one instance of it; raises once all were tried, if one would not go."""
        if not run_id:
            raise SandboxSpecError("a sweep needs a run id: without one it would end other people's sandboxes")
        ids = [record.sandbox_id for record in await self.find(run_id=run_id, instance=instance)]
        ending = (asyncio.to_thread(self._end, self._root / sandbox_id) for sandbox_id in ids)
        outcomes = await asyncio.gather(*ending, return_exceptions=True)
        left = [f"{sandbox_id}: {outcome}" for sandbox_id, outcome in zip(ids, outcomes, strict=True) if outcome is not None]
        if left:
            raise SandboxError(f"{len(left)} of {len(ids)} sandboxes could not be ended: {'; '.join(left)}", "session_release_failed")
        return ids

    async def aclose(self) -> None:
        """Forget the keepers of sandboxes that have ended. Sandboxes stay."""
        for sandbox_id, keeper in list(self._keepers.items()):
            if keeper.poll() is not None:
                del self._keepers[sandbox_id]

    def _folder(self, handle: SandboxHandle) -> Path:
        if isinstance(handle, LocalHandle):
            return handle.folder
        if not folders.is_sandbox_id(handle.sandbox_id):
            raise SandboxSpecError(f"{handle.sandbox_id!r} is no sandbox id")
        return self._root / handle.sandbox_id

    def _end(self, folder: Path) -> None:
        folders.end(folder)
        keeper = self._keepers.pop(folder.name, None)
        if keeper is not None:
            keeper.wait()
            if keeper.stdout is not None:
                keeper.stdout.close()


def _said(keeper: "subprocess.Popen[bytes]") -> str:
    assert keeper.stdout is not None
    with keeper.stdout as answer:
        return answer.read().decode(errors="replace")


def _explained(sandbox_id: str, said: str, unconfined: bool) -> str:
    why = " ".join(said.split()) or "its keeper ended at once"
    hint = f": {_HINT}" if not unconfined and ("namespace" in why or "bwrap" in why or "uid map" in why) else ""
    return f"sandbox {sandbox_id} could not be started ({why}){hint}"


def _connected(folder: Path) -> LocalHandle:
    if not folder.exists():
        raise SandboxGoneError(f"sandbox {folder.name} is gone")
    if why := folders.not_private(folder.parent):
        raise SandboxError(f"the folder of local sandboxes {str(folder.parent)!r} {why}", "protocol_violation")
    if folders.labels_of(folder) is None:
        raise SandboxError(f"{str(folder)!r} is not a sandbox of ours", "protocol_violation")
    if folders.status(folder) is not SandboxStatus.RUNNING:
        raise SandboxGoneError(f"sandbox {folder.name} no longer runs")
    return LocalHandle(folder.name, "/", folder=folder)


def _upload(folder: Path, path: str, data: bytes | Path, mode: int) -> None:
    if isinstance(data, Path) and not data.is_file():
        raise SandboxFileError(f"cannot upload {str(data)!r}: it is not a file here")
    answer, fd = channel.open_file(folder, {"op": "write", "path": path, "mode": mode})
    if fd is None:
        raise SandboxFileError(f"upload of {path!r} failed: {answer.get('said', 'no reason given')}")
    try:
        with os.fdopen(fd, "wb", 0) as target:
            if isinstance(data, Path):
                with data.open("rb") as source:
                    while piece := source.read(_PIECE):
                        _write(target.fileno(), piece)
            else:
                _write(target.fileno(), data)
    except OSError as error:
        raise SandboxFileError(f"upload of {path!r} failed: {error.strerror}") from error


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _download(folder: Path, path: str, max_bytes: int) -> bytes:
    answer, fd = channel.open_file(folder, {"op": "read", "path": path})
    if fd is None:
        said = {"missing": f"there is no file {path!r} in the sandbox", "special": f"{path!r} in the sandbox is not a regular file"}
        raise SandboxFileError(said.get(answer["error"], f"download of {path!r} failed: {answer.get('said')}"))
    content = bytearray()
    try:
        with os.fdopen(fd, "rb", 0) as source:
            while len(content) <= max_bytes and (piece := source.read(min(_PIECE, max_bytes + 1 - len(content)))):
                content += piece
    except OSError as error:
        raise SandboxFileError(f"download of {path!r} failed: {error.strerror}") from error
    if len(content) > max_bytes:
        raise SandboxFileError(f"{path!r} in the sandbox is longer than the {max_bytes} bytes allowed here")
    return bytes(content)


def _host() -> Host:
    return Host(float(os.cpu_count() or 0), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024))


def _local(handle: SandboxHandle) -> LocalHandle:
    if not isinstance(handle, LocalHandle):
        raise SandboxSpecError(f"sandbox {handle.sandbox_id} is not one of the local provider")
    return handle


def _target(path: str) -> str:
    if not PurePosixPath(path).is_absolute() or "\0" in path or path.endswith("/"):
        raise SandboxSpecError(f"{path!r} must be an absolute path of a file in the sandbox")
    return path
