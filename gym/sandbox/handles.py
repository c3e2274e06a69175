"""The two ways to hold a sandbox: its owner can stop it, a borrower cannot.

Invariant: ownership never moves. `BorrowedSandbox` is made from a `SandboxAccess` and has no
method that ends the sandbox, so code that is handed one cannot end it by mistake. What a
sandbox can do is the provider's; these types only say who may ask for it.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gym.protocol.access import DirectSandboxConnection, SandboxAccess
from gym.sandbox.cleanup import finish
from gym.sandbox.leases import Leases
from gym.sandbox.ownership import Ownership, new_sandbox_id
from gym.sandbox.provider import MAX_DOWNLOAD_BYTES, Capabilities, Provider, SandboxHandle, check_capabilities, is_doubtful
from gym.sandbox.spec import ExecResult, SandboxError, SandboxGoneError, SandboxSpec, SandboxSpecError, SandboxStatus

STOP_BOUND_S = 120.0
"""How long one stop may take before it counts as failed."""


class _Sandbox:
    """What owners and borrowers can do alike: run commands and move files."""

    def __init__(self, provider: Provider, handle: SandboxHandle) -> None:
        self._provider = provider
        self._handle = handle
        self._let_go: str | None = None
        """Why this object can no longer be used, once it cannot."""

    @property
    def sandbox_id(self) -> str:
        """The sandbox's durable id."""
        return self._handle.sandbox_id

    @property
    def capabilities(self) -> Capabilities:
        """What its provider can do."""
        return self._provider.capabilities

    @property
    def workdir(self) -> str:
        """Where commands run unless told otherwise."""
        return self._handle.workdir

    @property
    def observations(self) -> Mapping[str, Any]:
        """What was really given: image id, clamped limits, start-up times in seconds."""
        return self._handle.observations

    async def exec(
        self,
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
        """Run a shell command to its end, its time-out or a cancellation; see `Provider.exec`."""
        return await self._provider.exec(
            self._held(),
            command,
            cwd=cwd,
            env=env,
            user=user,
            timeout_s=timeout_s,
            stdin=stdin,
            max_output_bytes=max_output_bytes,
            output_file=output_file,
        )

    async def upload(self, path: str, data: bytes | Path, *, mode: int = 0o644) -> None:
        """Write a file in the sandbox; missing folders are made."""
        await self._provider.upload(self._held(), path, data, mode=mode)

    async def download(self, path: str, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> bytes:
        """The bytes of a regular file in the sandbox; SandboxFileError if there is none."""
        return await self._provider.download(self._held(), path, max_bytes=max_bytes)

    async def status(self) -> SandboxStatus:
        """What the provider says about the sandbox."""
        return SandboxStatus.STOPPED if self._let_go else await self._provider.status(self._handle)

    async def alive(self) -> bool:
        """Whether the sandbox still runs: the one probe that tells a dead box from a failed command."""
        return await self.status() is SandboxStatus.RUNNING

    def _held(self) -> SandboxHandle:
        if self._let_go:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} {self._let_go}")
        return self._handle


class OwnedSandbox(_Sandbox):
    """A sandbox that we made, and must stop. As an async context manager it stops itself."""

    def __init__(self, provider: Provider, handle: SandboxHandle, leases: Leases | None = None) -> None:
        super().__init__(provider, handle)
        self._leases = leases

    @classmethod
    async def start(
        cls,
        provider: Provider,
        spec: SandboxSpec,
        ownership: Ownership,
        *,
        sandbox_id: str | None = None,
        leases: Leases | None = None,
    ) -> "OwnedSandbox":
        """Make a sandbox. A server of a run gives the `leases` of its context: the id is in the journal before create is sent.

        Where the provider has several places, the next one is tried when one fails. Raises SandboxError:
        `persistence_failed` if the journal cannot be written, and then nothing was asked for.
        """
        check_capabilities(provider.name, provider.capabilities, spec)
        chosen = sandbox_id or new_sandbox_id()
        failures: list[SandboxError] = []
        for part in provider.parts:
            try:
                return await cls._start_at(part, chosen, spec, ownership, leases)
            except SandboxSpecError:
                raise
            except SandboxError as error:
                failures.append(error)
                if is_doubtful(error):  # the other place must not know it by the name that may yet come about here
                    chosen = new_sandbox_id()
        if len(failures) == 1:
            raise failures[0]
        raise SandboxError(
            f"no place of {len(failures)} made the sandbox: {'; '.join(map(str, failures))}", failures[0].kind
        ) from failures[0]

    @classmethod
    async def _start_at(
        cls, provider: Provider, chosen: str, spec: SandboxSpec, ownership: Ownership, leases: Leases | None
    ) -> "OwnedSandbox":
        if leases is not None:
            leases.take(chosen, provider.place, ownership)
        try:
            handle = await provider.create(chosen, spec, ownership)
        except BaseException as error:
            if leases is not None and is_doubtful(error):
                leases.give_up(chosen)  # the provider took it back as well as it could; that is made sure of later
            elif leases is not None:
                leases.drop(chosen)
            raise
        return cls(provider, handle, leases)

    async def stop(self) -> None:
        """End the sandbox, within 120 s and shielded from cancellation. Again after success: nothing; after a failure: a retry."""
        if self._let_go:
            return
        try:
            await finish(self._closed(), STOP_BOUND_S)
        except TimeoutError as error:
            self._give_up()
            raise SandboxError(
                f"sandbox {self.sandbox_id} did not stop within {STOP_BOUND_S:g} s; its stop can be tried again", "session_release_failed"
            ) from error
        except SandboxError:
            self._give_up()
            raise
        self._let_go = "was stopped by its owner"

    async def _closed(self) -> None:
        await self._provider.close(self._handle)
        if self._leases is not None:
            self._leases.drop(self.sandbox_id)  # here, as a cancellation may come before the caller goes on

    def _give_up(self) -> None:
        if self._leases is not None:
            self._leases.give_up(self.sandbox_id)

    def serialize(self, provider_config_ref: str) -> SandboxAccess:
        """What a borrower needs: `provider_config_ref` is the name of the top-level provider block in its configuration."""
        if not self._provider.capabilities.connect:
            raise SandboxError(f"a sandbox of provider {self._provider.name!r} cannot be lent to another process", "protocol_violation")
        descriptor = self._provider.serialize(self._held())
        connection = DirectSandboxConnection(provider_config_ref=provider_config_ref, descriptor=descriptor)
        return SandboxAccess(connection=connection, workdir=self.workdir)

    async def __aenter__(self) -> "OwnedSandbox":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        await self.stop()


class BorrowedSandbox(_Sandbox):
    """A sandbox that somebody lent us. It outlives this object, and has no stop."""

    @classmethod
    async def connect(cls, access: SandboxAccess, providers: Mapping[str, Provider]) -> "BorrowedSandbox":
        """Reach a lent sandbox. `providers` are ours, by the name of their configuration block."""
        ref = access.connection.provider_config_ref
        provider = providers.get(ref)
        if provider is None:
            known = ", ".join(sorted(providers)) or "none"
            raise SandboxError(f"no sandbox provider block {ref!r} in this configuration (known: {known})", "protocol_violation")
        handle = await provider.connect(access.connection.descriptor)
        handle.workdir = access.workdir
        return cls(provider, handle)

    def disconnect(self) -> None:
        """Let go of the sandbox, which runs on. Commands after this are refused."""
        self._let_go = self._let_go or "was disconnected by its borrower"

    async def __aenter__(self) -> "BorrowedSandbox":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        self.disconnect()
