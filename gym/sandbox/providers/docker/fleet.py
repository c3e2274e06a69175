"""Several Docker engines behind one provider block: which of them a sandbox goes to, and which one has it.

Invariants: a sandbox stays with the engine that made it, whose address stands in its handle and its
descriptor; an engine that does not answer costs the others nothing but the create that found it out.
What an engine is asked, and how, is `DockerProvider`'s.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import MAX_DOWNLOAD_BYTES, HostView, SandboxHandle
from gym.sandbox.providers.docker.provider import CAPABILITIES, DockerHandle, DockerProvider
from gym.sandbox.providers.docker_options import NAME, DockerOptions
from gym.sandbox.spec import ExecResult, SandboxError, SandboxRecord, SandboxSpec, SandboxSpecError, SandboxStatus

T = TypeVar("T")

log = logging.getLogger(__name__)

_REST_S = 30.0
"""For how long an engine that did not answer is passed over; twice as long after each further failure."""

_LONGEST_REST_S = 600.0


class DockerFleet:
    """Sandboxes as containers of several engines."""

    def __init__(self, options: DockerOptions, default_metadata: Mapping[str, str] | None = None) -> None:
        self.name = NAME
        self.capabilities = CAPABILITIES
        self._weights: dict[str, float] = {}
        self._engines: list[DockerProvider] = []
        for one in options.hosts:
            alone = options.model_copy(update={"host": one.host, "cert_path": one.cert_path or options.cert_path, "hosts": []})
            engine = DockerProvider(alone, default_metadata)
            self._engines.append(engine)
            self._weights[engine.address] = one.weight
        self._turn = 0
        self._resting: set[str] = set()

    @property
    def place(self) -> str:
        """All places together. Sandboxes are in one of the `parts`, and are known by its place."""
        return "; ".join(engine.place for engine in self._engines)

    @property
    def networks(self) -> None:
        """Each engine has its own."""
        return

    async def host_view(self, run_id: str) -> HostView:
        """How this machine is seen from sandboxes at any of the engines; SandboxSpecError where they differ in that."""
        views = {await engine.host_view(run_id) for engine in self._engines}
        if len(views) > 1:
            seen = ", ".join(sorted(view.host or view.why_not for view in views))
            raise SandboxSpecError(
                f"containers at these hosts call this machine by different addresses ({seen}): set reach_host of the block"
            )
        return views.pop()

    @property
    def parts(self) -> list[DockerProvider]:
        """The engines: first the one with the fewest sandboxes of this process for its weight, last those that do not answer."""
        count = len(self._engines)
        self._turn += 1
        order = [self._engines[(self._turn + index) % count] for index in range(count)]
        return sorted(order, key=lambda engine: (self._rests(engine), len(engine.held) / self._weights[engine.address]))

    def _rests(self, engine: DockerProvider) -> bool:
        rest = min(_LONGEST_REST_S, _REST_S * 2 ** (engine.failures - 1)) if engine.failures else 0.0
        resting = time.monotonic() < engine.failed_at + rest
        if resting and engine.address not in self._resting:
            self._resting.add(engine.address)
            log.warning("the Docker engine at %s does not answer, and is passed over until it does", engine.address)
        elif not engine.failures and engine.address in self._resting:
            self._resting.discard(engine.address)
            log.warning("the Docker engine at %s answers again", engine.address)
        return resting

    async def create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> DockerHandle:
        """Make a container on the engine whose turn it is, and on no other: `OwnedSandbox.start` goes on to the next."""
        return await self.parts[0].create(sandbox_id, spec, ownership)

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
        return await self._of(handle).exec(
            handle,
            command,
            cwd=cwd,
            env=env,
            user=user,
            timeout_s=timeout_s,
            stdin=stdin,
            max_output_bytes=max_output_bytes,
            output_file=output_file,
        )

    async def upload(self, handle: SandboxHandle, path: str, data: bytes | Path, *, mode: int = 0o644) -> None:
        """Write a file in the container."""
        await self._of(handle).upload(handle, path, data, mode=mode)

    async def download(self, handle: SandboxHandle, path: str, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> bytes:
        """Read a regular file of the container."""
        return await self._of(handle).download(handle, path, max_bytes=max_bytes)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What its engine says about the container."""
        return await self._of(handle).status(handle)

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the container; of one that is known by its id alone every engine must say that it is gone."""
        engines = [self._of(handle)] if isinstance(handle, DockerHandle) else self._engines
        _raise_first(await asyncio.gather(*(engine.close(handle) for engine in engines), return_exceptions=True))

    def serialize(self, handle: SandboxHandle) -> dict[str, Any]:
        """The descriptor that `connect` takes."""
        return self._of(handle).serialize(handle)

    async def connect(self, descriptor: Mapping[str, Any]) -> DockerHandle:
        """A handle to a running container of ours, at the engine that the descriptor names."""
        return await self._at(descriptor.get("engine")).connect(descriptor)

    async def find(self, *, run_id: str | None = None, instance: str | None = None) -> list[SandboxRecord]:
        """All containers of ours with these labels; raises if an engine does not answer."""
        found = await asyncio.gather(*(engine.find(run_id=run_id, instance=instance) for engine in self._engines))
        return [record for records in found for record in records]

    async def sweep(self, *, run_id: str, instance: str | None = None) -> list[str]:
        """Remove all containers of a run, or of one instance of it; raises once every engine was tried, if one failed."""
        sweeps = (engine.sweep(run_id=run_id, instance=instance) for engine in self._engines)
        return [sandbox_id for ids in _raise_first(await asyncio.gather(*sweeps, return_exceptions=True)) for sandbox_id in ids]

    async def aclose(self) -> None:
        """Close the connections to the engines."""
        await asyncio.gather(*(engine.aclose() for engine in self._engines))

    def _of(self, handle: SandboxHandle) -> DockerProvider:
        return self._at(handle.engine if isinstance(handle, DockerHandle) else None)

    def _at(self, address: object) -> DockerProvider:
        for engine in self._engines:
            if engine.address == address:
                return engine
        known = ", ".join(engine.address for engine in self._engines)
        raise SandboxError(
            f"the sandbox is at the Docker engine {address!r}, which is not among this block's hosts ({known})", "protocol_violation"
        )


def _raise_first(outcomes: list[T | BaseException]) -> list[T]:
    failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
    if failed is not None:
        raise failed
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
