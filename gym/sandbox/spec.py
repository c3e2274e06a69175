"""What a sandbox is asked to be, what a command in it gave, and the ways it can fail.

Provider-neutral data only. Invariant: a spec never names credentials, and an unknown key is an
error rather than a wish that nobody hears. How a provider meets a spec lives in `providers/`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from gym.config.schema import Section
from gym.protocol.failures import bounded_reason, check_failure_kind

SANDBOX_FAILED_CODE = 125
"""`return_code` of an exec whose sandbox failed under it (the code that container command lines use too)."""

TIMEOUT_CODE = 124
"""`return_code` of an exec that ran into its time-out (the code of coreutils' `timeout`)."""


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute() or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path inside the sandbox — begin it with /")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Port = Annotated[int, Field(ge=1, le=65535)]


class SandboxResources(Section):
    """Amounts of a host's resources. None means: not limited, or not asked for."""

    cpu: Annotated[float, Field(gt=0)] | None = None
    """CPUs; fractions are allowed."""
    memory_mib: Annotated[int, Field(ge=8)] | None = None
    """Memory, swap not counted."""
    disk_gib: Annotated[float, Field(gt=0)] | None = None
    """Advisory where the engine cannot enforce it."""
    gpu: Annotated[int, Field(ge=1)] | None = None
    """Whole GPUs."""


class SandboxSpec(Section):
    """One sandbox. Times are in seconds, paths are inside the sandbox."""

    image: str | None = None
    """The image; of SWE tasks the row names it."""
    ttl_s: Annotated[float, Field(gt=0)] | None = None
    """The sandbox ends itself after this long, even if nobody is left to stop it; None takes the provider's default."""
    ready_timeout_s: float = Field(default=120, gt=0)
    """From create to the first command that answers; the pull of an image is not counted."""
    workdir: AbsolutePath | None = None
    """Where commands start, unless they say otherwise; null: the image's own."""
    user: str | None = None
    """Whom commands run as; null: the image's own."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command."""
    files: dict[AbsolutePath, str | bytes] = Field(default_factory=dict)
    """Written before the sandbox is handed out: path -> content."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Labels, for whoever looks at the engine."""
    resources: SandboxResources = Field(default_factory=SandboxResources)
    """Limits. One above what the host has is clamped to it, and recorded."""
    resource_requests: SandboxResources = Field(default_factory=SandboxResources)
    """Floors. One that the host cannot give is refused."""
    entrypoint: Annotated[list[str], Field(min_length=1)] | None = None
    """A service to start beside the sandbox's commands; its end does not end the sandbox."""
    ports: list[Port] = Field(default_factory=list[int])
    """Ports of the sandbox that its host can reach."""
    network: str | None = None
    """Overrides the provider block's network; what names mean is the provider's."""
    provider_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the provider's own."""

    @field_validator("env")
    @classmethod
    def _env_names(cls, env: dict[str, str]) -> dict[str, str]:
        return check_env(env)

    @model_validator(mode="after")
    def _floors_below_limits(self) -> "SandboxSpec":
        for name in SandboxResources.model_fields:
            floor, limit = getattr(self.resource_requests, name), getattr(self.resources, name)
            if floor is not None and limit is not None and floor > limit:
                raise ValueError(
                    f"resource_requests.{name} is {floor}, above its limit resources.{name} = {limit} — lower it, or raise the limit"
                )
        return self


def check_env(env: dict[str, str]) -> dict[str, str]:
    """Return `env` if every name and value can stand in a process environment; raise ValueError otherwise."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"{name!r} cannot be an environment variable — leave '=' out of names, and NUL out of all")
    return env


@dataclass(frozen=True)
class ExecResult:
    """What a command gave. A command's own failure is its `return_code`; `error_type` is for everything else."""

    stdout: str
    stderr: str
    return_code: int
    error_type: Literal["timeout", "sandbox"] | None = None
    truncated: bool = False
    """Output was longer than the bound: its middle is left out, and the text says so."""
    cleanup_confirmed: bool = True
    """False if after a time-out it could not be made certain that every process of the command is gone."""
    oom_killed: bool = False
    """The memory limit ended a process of the sandbox while the command ran: mostly one of its own, whatever its return code."""

    @property
    def ok(self) -> bool:
        """Whether the command ran to its end and returned 0."""
        return self.return_code == 0 and self.error_type is None

    @property
    def failure_kind(self) -> str | None:
        """The failure table's kind for a sandbox that died under the command; None where it lives."""
        if self.error_type != "sandbox":
            return None
        return "provider_oom_killed" if self.oom_killed else "session_lost"


class SandboxStatus(StrEnum):
    """What a provider knows about a sandbox. `stopped` includes: no longer there."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxRecord:
    """A sandbox as its provider lists it: for the reaper, and for people."""

    sandbox_id: str
    status: SandboxStatus
    labels: dict[str, str] = field(default_factory=dict[str, str])


class SandboxError(Exception):
    """A sandbox or its provider failed. `kind` is one of the failure table; the text is for the reader."""

    def __init__(self, message: str, kind: str = "provider_unavailable") -> None:
        super().__init__(bounded_reason(message))
        self.kind = check_failure_kind(kind)


class SandboxSpecError(SandboxError):
    """The spec asks for what cannot be given. Trying again gives the same."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "protocol_violation")


class SandboxGoneError(SandboxError):
    """The sandbox is no longer there, or no longer runs."""

    def __init__(self, message: str, kind: str = "session_lost") -> None:
        super().__init__(message, kind)


class SandboxFileError(SandboxError):
    """A file in the sandbox is missing, is not a regular file, or is too long. The sandbox itself is well."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "sandbox:file")
