"""The `docker` provider: containers made, found, lent and removed through one engine.

Invariant: a create that fails or is cancelled leaves no container, and only containers that
carry our label are ever connected to or swept.
"""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

import orjson

from gym.sandbox.cleanup import finish
from gym.sandbox.ownership import INSTANCE, MARK, RUN_ID, Ownership, time_labels
from gym.sandbox.pacing import Pace
from gym.sandbox.provider import MAX_DOWNLOAD_BYTES, Capabilities, HostView, SandboxHandle, check_capabilities, mark_doubtful
from gym.sandbox.providers.docker.address import engine_address
from gym.sandbox.providers.docker.creation import ContainerPlan, host_of, plan_container
from gym.sandbox.providers.docker.engine import Engine, EngineError, name_in_path
from gym.sandbox.providers.docker.execution import Command, Commands
from gym.sandbox.providers.docker.files import Files
from gym.sandbox.providers.docker.images import Images
from gym.sandbox.providers.docker.memory import MemoryWatch
from gym.sandbox.providers.docker.networks import Networks, missing_network
from gym.sandbox.providers.docker_options import NAME, DockerOptions
from gym.sandbox.spec import (
    ExecResult,
    SandboxError,
    SandboxGoneError,
    SandboxRecord,
    SandboxSpec,
    SandboxSpecError,
    SandboxStatus,
    check_env,
)

log = logging.getLogger(__name__)

CAPABILITIES = Capabilities(
    connect=True,
    images=True,
    network=True,
    users=True,
    ports=False,
    snapshots=False,
    limits=frozenset({"cpu", "memory_mib", "gpu"}),
    advisory=frozenset({"disk_gib"}),
)

_REMOVE_BOUND_S = 110.0
"""Below the 120 s of a stop, so that the engine's own words reach the caller."""

_ID = re.compile(r"nemo-gym-[0-9a-f]{8,64}")
_FIND_SHELL = "command -v bash || command -v sh"
_LONGEST_ARGUMENT = 100_000
"""Bytes of a command that go as an argument; Linux takes 128 KiB in one."""

_FROM_STDIN = 'script=$(head -c "$1"); eval "$script" </dev/null'
_WITH_STDIN = 'head -c "$1" | "$2" -c "$3"'
_STATES = {
    "created": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "restarting": SandboxStatus.STARTING,
    "paused": SandboxStatus.PAUSED,
    "removing": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "dead": SandboxStatus.STOPPED,
}


@dataclass
class DockerHandle(SandboxHandle):
    """A container, known by its name."""

    shell: str = "/bin/sh"
    by_command: bool = False
    """Files go by commands: the container has tmpfs mounts or a read-only root."""
    engine: str = ""
    """The address of its engine."""


class DockerProvider:
    """Sandboxes as containers of one Docker engine."""

    def __init__(self, options: DockerOptions, default_metadata: Mapping[str, str] | None = None) -> None:
        self.name = NAME
        self.capabilities = CAPABILITIES
        self._options = options
        self._metadata = dict(default_metadata or {})
        self._engine = Engine(engine_address(options.host, options.cert_path), options.request_timeout_s)
        create = options.create
        self.networks = Networks(self._engine, options)
        self._images = Images(self._engine, attempts=create.pull_attempts, timeout_s=create.pull_timeout_s)
        self._memory = MemoryWatch(self._engine)
        self._commands = Commands(self._engine, self._alive, self._memory, options.exec.concurrency)
        self._files = Files(self._engine, self._commands, self._memory, options.copy_)
        self._shells: dict[str, str] = {}
        self._creating = asyncio.Semaphore(create.concurrency)
        self._pace = Pace(create.rate_per_second, create.burst, create.jitter)
        self.held: set[str] = set()
        """The containers that this process has, or is making."""
        self.failures = 0
        """How many creates in a row found no engine, the last of them `failed_at` (monotonic seconds)."""
        self.failed_at = 0.0

    @property
    def address(self) -> str:
        """The engine's address."""
        return self._engine.address.text

    @property
    def parts(self) -> "tuple[DockerProvider]":
        """Itself."""
        return (self,)

    @property
    def place(self) -> str:
        """The engine's address; a socket of this machine is named with the machine."""
        at = self._engine.address
        return f"docker {at.text}" if at.socket_path is None else f"docker {at.text} on {socket.gethostname()}"

    async def host_view(self, run_id: str) -> HostView:
        """How this machine is seen from containers in the block's network."""
        return await self.networks.host_view(run_id)

    async def create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> DockerHandle:
        """Make a container that is ready for commands. If this raises or is cancelled, nothing is left of it."""
        if not _ID.fullmatch(sandbox_id):
            raise SandboxSpecError(f"{sandbox_id!r} is no sandbox id: use new_sandbox_id()")
        if not spec.image:
            raise SandboxSpecError("sandbox spec: image is missing, and the docker provider has none of its own")
        check_capabilities(self.name, self.capabilities, spec)
        self.held.add(sandbox_id)
        try:
            handle = await self._create(sandbox_id, spec, ownership)
        except BaseException as error:
            self.held.discard(sandbox_id)
            if isinstance(error, EngineError) and error.unreachable:
                self.failures, self.failed_at = self.failures + 1, time.monotonic()
            raise
        self.failures = 0
        return handle

    async def _create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> DockerHandle:
        plan = plan_container(spec, ownership, self._options.create, host_of(await self._engine.info()), self._metadata)
        image = await self._images.ensure(plan.body["Image"], self._options.create.pull)
        async with self._creating:
            await self._pace.turn()
            plan.body["Labels"] |= time_labels(plan.ttl_s)  # its time begins now, and not before the pull
            return await self._make(sandbox_id, spec, plan, image)

    async def _make(self, sandbox_id: str, spec: SandboxSpec, plan: ContainerPlan, image: dict[str, Any]) -> DockerHandle:
        began = time.monotonic()
        making = asyncio.ensure_future(self._engine.json("POST", "/containers/create", params={"name": sandbox_id}, body=plan.body))
        try:
            async with asyncio.timeout(self._options.create.start_timeout_s):
                await asyncio.shield(making)
                created = time.monotonic()
                await self._engine.request("POST", f"/containers/{sandbox_id}/start", timeout_s=self._options.create.start_timeout_s)
            started = time.monotonic()
            if plan.body["HostConfig"].get("Memory"):
                await self._memory.add(sandbox_id)
            workdir = spec.workdir or cast("dict[str, Any]", image.get("Config") or {}).get("WorkingDir") or "/"
            by_command = plan.isolation.read_only or bool(plan.isolation.tmpfs)
            handle = DockerHandle(sandbox_id, workdir, dict(plan.observations), by_command=by_command, engine=self.address)
            handle.shell = await self._shell_of(image, spec, plan, sandbox_id)
            ready = time.monotonic()
            files = {path: text.encode() if isinstance(text, str) else text for path, text in spec.files.items()}
            if files:
                await self._files.put(sandbox_id, files, 0o644, by_command=by_command or any(map(_is_mounted, files)))
            handle.observations |= {
                "image_id": image.get("Id"),
                "image_digests": image.get("RepoDigests") or [],
                "create_s": round(created - began, 3),
                "start_s": round(started - created, 3),
                "ready_s": round(ready - started, 3),
            }
            return handle
        except BaseException as error:
            undone = await self._undo(making, sandbox_id)
            if not undone:
                mark_doubtful(error)
            if isinstance(error, TimeoutError):
                bound = self._options.create.start_timeout_s
                failed = SandboxError(f"sandbox {sandbox_id} from image {spec.image!r} did not start within {bound:g} s")
                if not undone:
                    mark_doubtful(failed)
                raise failed from error
            if isinstance(error, EngineError) and 400 <= error.status < 500 and undone:
                lost = missing_network(plan.isolation.network, error)
                raise SandboxSpecError(f"cannot make a sandbox from image {spec.image!r}: {error}{lost}") from error
            raise

    async def _undo(self, making: "asyncio.Future[dict[str, Any]]", sandbox_id: str) -> bool:
        """Take back a create, however far it got, and say whether nothing can be left; else the reaper looks, or its TTL ends it."""

        async def take_back() -> bool:
            certain = True
            try:
                await making
            except EngineError as error:
                if not error.unreachable:
                    return True  # refused: nothing was made, and a container of that name is somebody else's
                certain = False  # the engine may be about to make it yet
            await self._remove(sandbox_id)
            return certain

        try:
            return await finish(take_back(), _REMOVE_BOUND_S)
        except asyncio.CancelledError as cancelled:
            mark_doubtful(cancelled)  # cancelled once more meanwhile: how it ended is not known here
            raise
        except (TimeoutError, SandboxError) as error:
            log.warning("sandbox %s may be left over from a failed create: %s", sandbox_id, error)
            return False

    async def _shell_of(self, image: dict[str, Any], spec: SandboxSpec, plan: ContainerPlan, container: str) -> str:
        """The shell of a fresh container. The first one of an image shows it, and that commands run at all, for the others too."""
        given = (plan.isolation.volumes, plan.isolation.tmpfs, plan.isolation.cap_drop, plan.isolation.security_opt)
        kind = repr((image.get("Id"), spec.user, spec.env.get("PATH"), *given))
        if kind not in self._shells:
            self._shells[kind] = await self._find_shell(container, spec.ready_timeout_s)
        return self._shells[kind]

    async def _find_shell(self, container: str, timeout_s: float) -> str:
        configured = self._options.exec.exec_shell
        argv = [configured, "-c", f"echo {configured}"] if configured else ["/bin/sh", "-c", _FIND_SHELL]
        last = "it gave no answer"
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    outcome = await self._commands.run(Command(container, argv, timeout_s, 4096, cwd="/"))
                    found = (await outcome.stdout.text()).strip()
                    if outcome.code == 0 and found:
                        return found.splitlines()[0]
                    last = f"{await outcome.reason()}{found}".strip() or f"exit code {outcome.code}"
                    if not await self._alive(container):
                        raise SandboxError(f"sandbox {container} ended before it was ready: its image needs /bin/sh and sleep ({last})")
                    await asyncio.sleep(0.2)
        raise SandboxError(f"sandbox {container} was not ready within {timeout_s:g} s: {last}")

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
        box = _docker(handle)
        options = self._options.exec
        if "\0" in command:
            raise SandboxSpecError("a command cannot hold a NUL")
        if timeout_s is not None and timeout_s <= 0:
            raise SandboxSpecError(f"timeout_s is {timeout_s:g}: give a positive number of seconds, or None for the default")
        try:
            checked = check_env(dict(env or {}))
        except ValueError as error:
            raise SandboxSpecError(str(error)) from error
        argv, fed = _shell_argv(box.shell, command, stdin)
        outcome = await self._commands.run(
            Command(
                container=box.sandbox_id,
                argv=argv,
                timeout_s=timeout_s or options.default_timeout_s,
                limit=max_output_bytes or options.max_output_bytes,
                cwd=cwd or box.workdir,
                env=checked,
                user=user,
                stdin=fed,
                output_file=output_file,
            )
        )
        out, err = await outcome.stdout.text(), await outcome.reason()
        return ExecResult(out, err, outcome.code, outcome.error_type, outcome.truncated, outcome.cleanup_confirmed, outcome.oom_killed)

    async def upload(self, handle: SandboxHandle, path: str, data: bytes | Path, *, mode: int = 0o644) -> None:
        """Write a file in the container, owned by root; missing folders are made."""
        box = _docker(handle)
        target = _target(path)
        by_command = box.by_command or _is_mounted(target)
        if isinstance(data, Path):
            await self._files.put_file(box.sandbox_id, target, data, mode, by_command=by_command)
        else:
            await self._files.put(box.sandbox_id, {target: data}, mode, by_command=by_command)

    async def download(self, handle: SandboxHandle, path: str, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> bytes:
        """Read a regular file of the container."""
        box = _docker(handle)
        target = _target(path)
        return await self._files.get(box.sandbox_id, target, max_bytes, by_command=box.by_command or _is_mounted(target))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What the engine says about the container; UNKNOWN if the engine does not answer."""
        return await self._status(handle.sandbox_id)

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the container; one that is gone already is well."""
        self.held.discard(handle.sandbox_id)
        await self._remove(handle.sandbox_id)
        self._memory.forget(handle.sandbox_id)

    def serialize(self, handle: SandboxHandle) -> dict[str, Any]:
        """The descriptor that `connect` takes."""
        box = _docker(handle)
        return {"provider": self.name, "sandbox_id": box.sandbox_id, "shell": box.shell, "engine": box.engine}

    async def connect(self, descriptor: Mapping[str, Any]) -> DockerHandle:
        """A handle to a running container of ours; SandboxGoneError if there is none."""
        sandbox_id, shell = descriptor.get("sandbox_id"), descriptor.get("shell")
        if not isinstance(sandbox_id, str) or descriptor.get("provider", self.name) != self.name:
            raise SandboxError(f"this descriptor is not one of a docker sandbox: it names {sorted(descriptor)}", "protocol_violation")
        try:
            state = await self._engine.json("GET", f"/containers/{name_in_path(sandbox_id)}/json")
        except EngineError as error:
            if error.status == 404:
                raise SandboxGoneError(f"sandbox {sandbox_id} is gone") from error
            raise
        config = cast("dict[str, Any]", state.get("Config") or {})
        labels = cast("dict[str, str]", config.get("Labels") or {})
        if labels.get(MARK) != "1":
            raise SandboxError(f"container {sandbox_id!r} is not a sandbox of ours", "protocol_violation")
        if not state["State"].get("Running"):
            raise SandboxGoneError(f"sandbox {sandbox_id} no longer runs")
        host_config = cast("dict[str, Any]", state.get("HostConfig") or {})
        by_command = bool(host_config.get("ReadonlyRootfs") or host_config.get("Tmpfs"))
        if host_config.get("Memory"):
            await self._memory.add(sandbox_id)
        if not isinstance(shell, str) or not shell.startswith("/"):
            shell = await self._find_shell(sandbox_id, self._options.request_timeout_s)
        observations = {"image_id": state.get("Image"), "network": host_config.get("NetworkMode")}
        return DockerHandle(sandbox_id, config.get("WorkingDir") or "/", observations, shell, by_command, self.address)

    async def find(self, *, run_id: str | None = None, instance: str | None = None) -> list[SandboxRecord]:
        """All containers of ours with these labels, dead ones included."""
        wanted = [f"{MARK}=1"]
        wanted += [f"{label}={value}" for label, value in ((RUN_ID, run_id), (INSTANCE, instance)) if value is not None]
        content, _ = await self._engine.request("GET", "/containers/json", params={"all": "1", "filters": {"label": wanted}})
        found = cast("list[dict[str, Any]]", orjson.loads(content))
        return [
            SandboxRecord(
                str(entry["Names"][0]).lstrip("/") if entry.get("Names") else str(entry["Id"]),
                _STATES.get(str(entry.get("State")).lower(), SandboxStatus.UNKNOWN),
                dict(entry.get("Labels") or {}),
            )
            for entry in found
        ]

    async def sweep(self, *, run_id: str, instance: str | None = None) -> list[str]:
        """Remove all containers of a run, or of one instance of it; raises once all were tried, if one would not go."""
        if not run_id:
            raise SandboxSpecError("a sweep needs a run id: without one it would end other people's sandboxes")
        ids = [record.sandbox_id for record in await self.find(run_id=run_id, instance=instance)]
        slots = asyncio.Semaphore(8)

        async def remove(sandbox_id: str) -> None:
            async with slots:
                await self._remove(sandbox_id)

        outcomes = await asyncio.gather(*(remove(sandbox_id) for sandbox_id in ids), return_exceptions=True)
        left = [f"{sandbox_id}: {outcome}" for sandbox_id, outcome in zip(ids, outcomes, strict=True) if outcome is not None]
        if left:
            raise SandboxError(f"{len(left)} of {len(ids)} sandboxes could not be removed: {'; '.join(left)}", "session_release_failed")
        return ids

    async def aclose(self) -> None:
        """Close the connections to the engine. Containers stay."""
        await self._memory.aclose()
        await self._engine.aclose()

    async def _remove(self, sandbox_id: str) -> None:
        deadline = time.monotonic() + _REMOVE_BOUND_S
        failures = 0
        while True:
            try:
                path = f"/containers/{name_in_path(sandbox_id)}"
                await self._engine.request("DELETE", path, params={"force": "1", "v": "1"})
                return
            except EngineError as error:
                if error.status == 404:
                    return
                in_progress = error.status == 409  # the engine is removing it already: wait until it is gone
                failures += not in_progress
                if failures >= 3 or time.monotonic() > deadline:
                    raise SandboxError(f"sandbox {sandbox_id} could not be removed: {error}", "session_release_failed") from error
                await asyncio.sleep(0.1 if in_progress else 1.0)

    async def _status(self, sandbox_id: str) -> SandboxStatus:
        try:
            state = (await self._engine.json("GET", f"/containers/{name_in_path(sandbox_id)}/json"))["State"]
        except EngineError as error:
            return SandboxStatus.STOPPED if error.status == 404 else SandboxStatus.UNKNOWN
        return _STATES.get(str(state.get("Status")).lower(), SandboxStatus.UNKNOWN)

    async def _alive(self, sandbox_id: str) -> bool:
        return await self._status(sandbox_id) is SandboxStatus.RUNNING


def _docker(handle: SandboxHandle) -> DockerHandle:
    if not isinstance(handle, DockerHandle):
        raise SandboxSpecError(f"sandbox {handle.sandbox_id} is not one of the docker provider")
    return handle


def _target(path: str) -> str:
    if not PurePosixPath(path).is_absolute() or "\0" in path or path.endswith("/"):
        raise SandboxSpecError(f"{path!r} must be an absolute path of a file in the sandbox")
    return path


def _is_mounted(path: str) -> bool:
    """Whether `path` is on a file system that every container mounts over its root, and that the engine's archives do not see."""
    return PurePosixPath(path).parts[1:2] in (("proc",), ("sys",), ("dev",))


def _shell_argv(shell: str, command: str, stdin: bytes | None) -> tuple[list[str], bytes | None]:
    """How to run `command`, and what to feed. A count of bytes ends stdin, since a connection cannot be closed half-way everywhere."""
    script = command.encode()
    if len(script) > _LONGEST_ARGUMENT:
        if stdin:
            raise SandboxSpecError(f"a command of {len(script)} bytes cannot have stdin as well: upload it as a file and run that")
        return [shell, "-c", _FROM_STDIN, shell, str(len(script))], script
    if stdin:
        return ["/bin/sh", "-c", _WITH_STDIN, "sh", str(len(stdin)), shell, command], stdin
    return [shell, "-c", command], None
