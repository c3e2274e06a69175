"""What a sandbox provider offers, and the check that a spec asks for nothing else.

Invariant: what a spec asks and a provider lacks is refused before anything is created, never
weakened in silence. Owning and borrowing are no business of a provider: see `handles`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gym.sandbox.ownership import Ownership
from gym.sandbox.spec import ExecResult, SandboxRecord, SandboxSpec, SandboxSpecError, SandboxStatus

MAX_DOWNLOAD_BYTES = 256 * 1024 * 1024
"""Longest file that `download` takes into memory unless told otherwise."""


@dataclass(frozen=True)
class Capabilities:
    """What a provider can do. A resource not named in `limits` cannot be limited."""

    connect: bool
    """Another process can work in a sandbox, given its descriptor."""
    images: bool
    network: bool
    users: bool
    ports: bool
    snapshots: bool
    limits: frozenset[str]
    """Names of `SandboxResources` fields that are enforced."""
    advisory: frozenset[str] = frozenset()
    """Names of those that are accepted and recorded, and not enforced."""


@dataclass
class SandboxHandle:
    """A provider's own record of one sandbox. A provider extends it with what it needs."""

    sandbox_id: str
    workdir: str
    observations: dict[str, Any] = field(default_factory=dict[str, Any])
    """What was really given: image id, clamped limits, start-up times in seconds."""


@dataclass(frozen=True)
class HostView:
    """How this machine is seen from a provider's sandboxes."""

    host: str = ""
    """The name or address that they call it by."""
    listen: str = ""
    """The address of ours at which such a call comes in."""
    why_not: str = ""
    """In place of both, where they have no way to us."""
    given: bool = False
    """Said by the user, and not found by ourselves."""


class RunNetworks(Protocol):
    """The networks that a provider can make for a run. They are known by id, as sandboxes are, and carry the same labels."""

    def needed(self, run_id: str) -> str | None:
        """The id of the network that the sandboxes of this run are to be in; None where none of our making is asked for."""
        ...

    async def make(self, network_id: str, ownership: Ownership) -> None:
        """Make it. The exception is marked with `mark_doubtful` where it may have come about all the same."""
        ...

    async def remove(self, network_id: str) -> bool:
        """Remove it. False if sandboxes are in it still: then it stays, and nothing is wrong. One that is gone is well."""
        ...

    async def find(self, *, run_id: str | None = None) -> list[SandboxRecord]:
        """All networks of ours with these labels."""
        ...


class Provider(Protocol):
    """A place where sandboxes run. Methods raise `SandboxError` and its kin, and nothing else of their own."""

    @property
    def name(self) -> str:
        """The provider's type, e.g. `docker`."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def place(self) -> str:
        """Where its sandboxes are: two providers with the same place see the same ones. It holds no credentials."""
        ...

    @property
    def parts(self) -> "Sequence[Provider]":
        """The providers of one place each that it is made of, the one to be used next first; of a provider of one place, itself."""
        ...

    @property
    def networks(self) -> RunNetworks | None:
        """The networks that it can make; None for a provider that makes none."""
        ...

    async def host_view(self, run_id: str) -> HostView:
        """How this machine is seen from sandboxes of a run, once the run's network is there.

        Raises SandboxSpecError if only the user can say that, SandboxError if it could not be found out now.
        """
        ...

    async def create(self, sandbox_id: str, spec: SandboxSpec, ownership: Ownership) -> SandboxHandle:
        """Make a sandbox that is ready for commands. If this raises or is cancelled, nothing is left of it.

        Where that cannot be made certain, the exception is marked with `mark_doubtful`.
        """
        ...

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
        """Run a shell command. Time-out and cancellation end all its processes inside the sandbox.

        `max_output_bytes` bounds stdout and stderr each; beyond it the middle is left out. All of stdout goes to
        `output_file` as well, a file of ours, as it comes; if that cannot be written the command is ended, and
        SandboxError (`persistence_failed`) raised. A dead sandbox is a result with `error_type` "sandbox", not an exception.
        """
        ...

    async def upload(self, handle: SandboxHandle, path: str, data: bytes | Path, *, mode: int = 0o644) -> None:
        """Write a file in the sandbox, from bytes or from a file of ours; missing folders are made."""
        ...

    async def download(self, handle: SandboxHandle, path: str, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> bytes:
        """Read a regular file of the sandbox; SandboxFileError if it is missing, special or longer than `max_bytes`."""
        ...

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """What the provider says about the sandbox; UNKNOWN if the provider cannot be asked."""
        ...

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox. One that is gone already is well; a failure raises, and can be tried again.

        The reaper closes by id: a plain `SandboxHandle` that only names the sandbox must do.
        """
        ...

    def serialize(self, handle: SandboxHandle) -> dict[str, Any]:
        """A descriptor that `connect` understands, also in another process. It holds no credentials."""
        ...

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """A handle to a running sandbox of ours; SandboxGoneError if there is none."""
        ...

    async def find(self, *, run_id: str | None = None, instance: str | None = None) -> list[SandboxRecord]:
        """All sandboxes of ours with these labels, dead ones included."""
        ...

    async def sweep(self, *, run_id: str, instance: str | None = None) -> list[str]:
        """End all sandboxes of a run, or of one instance of it; the ids of those that are gone now."""
        ...

    async def aclose(self) -> None:
        """Let go of connections. Sandboxes stay."""
        ...


def mark_doubtful(error: BaseException) -> None:
    """Say with the exception of a failed create that a sandbox may be left, or may come about yet."""
    error.__dict__["sandbox_doubtful"] = True


def is_doubtful(error: BaseException) -> bool:
    """Whether after this exception of a create something may be left."""
    return bool(error.__dict__.get("sandbox_doubtful"))


def check_capabilities(name: str, capabilities: Capabilities, spec: SandboxSpec) -> None:
    """Raise SandboxSpecError if `spec` asks for what provider `name` cannot do."""
    lacking: list[str] = []
    if spec.image is not None and not capabilities.images:
        lacking.append(f"image {spec.image!r} (it has no images)")
    if spec.network is not None and not capabilities.network:
        lacking.append(f"network {spec.network!r} (it has no network policy)")
    if spec.user is not None and not capabilities.users:
        lacking.append(f"user {spec.user!r}")
    if spec.ports and not capabilities.ports:
        lacking.append(f"published ports {spec.ports}")
    for resource in spec.resources.model_fields_set:
        if getattr(spec.resources, resource) is not None and resource not in capabilities.limits | capabilities.advisory:
            lacking.append(f"a limit on {resource}")
    if lacking:
        raise SandboxSpecError(f"sandbox provider {name!r} cannot give {'; '.join(lacking)}: drop it from the spec or use another provider")
