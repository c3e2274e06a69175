"""The options of the `docker` provider: its configuration block, and what one spec may set.

Light on purpose, so that checking a configuration does not load the provider. Unknown keys are
errors. Times are in seconds.
"""

import re
from ipaddress import IPv6Address
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from gym.config.schema import Section

NAME = "docker"
INTERNAL = "internal"
"""The network that we make for a run: with a way to this machine, and to nothing else."""
NOWHERE = "none"
"""No network; as `reach_host`: no way to this machine."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _host(text: str) -> str:
    try:
        return str(IPv6Address(text.strip("[]")))
    except ValueError:
        if not _HOST.fullmatch(text):
            raise ValueError(f"{text!r} is not a host — write a name or an address, without scheme and port") from None
    return text


HostName = Annotated[str, AfterValidator(_host)]


class DockerIsolation(Section):
    """How a container is closed in. In a spec's `provider_options` a field that is set replaces the block's."""

    network: str | None = None
    """`internal`, `bridge`, `none`, `host`, or a network's name; None leaves it to the engine. See docs/sandbox.md."""
    read_only: bool = False
    """The root file system cannot be written; give `tmpfs` for what must be."""
    cap_drop: list[str] = Field(default_factory=list)
    cap_add: list[str] = Field(default_factory=list)
    security_opt: list[str] = Field(default_factory=list)
    pids_limit: Annotated[int, Field(ge=1)] | None = 4096
    volumes: list[str] = Field(default_factory=list)
    """`<absolute host path or volume>:<path>[:ro]`."""
    tmpfs: dict[str, str] = Field(default_factory=dict)
    """Path -> mount options, e.g. `{"/tmp": "size=1g,exec"}`."""
    extra_hosts: list[str] = Field(default_factory=list)
    """`<name>:<address>`; the address `host-gateway` is the engine's host."""

    @field_validator("volumes")
    @classmethod
    def _volumes(cls, volumes: list[str]) -> list[str]:
        for volume in volumes:
            parts = volume.split(":")
            if len(parts) not in (2, 3) or not parts[0] or not parts[1].startswith("/"):
                raise ValueError(f"volume {volume!r} is not a volume — write <host path or volume name>:<absolute path>[:ro]")
        return volumes


class DockerCreate(DockerIsolation):
    """How containers are made."""

    use_init: bool = True
    """A small init as pid 1 reaps orphans and ends the container at once."""
    start_timeout_s: float = Field(default=600, gt=0)
    """The bound of create and start together, waiting for the engine included, the pull excluded."""
    default_ttl_s: float = Field(default=86_400, gt=0)
    """For specs without `ttl_s`."""
    apply_resource_limits: bool = True
    concurrency: int = Field(default=8, ge=1)
    """Containers being created at once, not containers running."""
    rate_per_second: float = Field(default=50, gt=0)
    """Creates that are sent per second and process, on average."""
    burst: int = Field(default=16, ge=1)
    """Creates that may be sent at once after a pause."""
    jitter: float = Field(default=0.5, ge=0, le=1)
    """By which part of it the time between two creates varies, so that many processes do not fall into step."""
    pull: Literal["missing", "always", "never"] = "missing"
    pull_attempts: int = Field(default=4, ge=1)
    pull_timeout_s: float = Field(default=1_800, gt=0)


class DockerExec(Section):
    """How commands are run."""

    default_timeout_s: float = Field(default=180, gt=0)
    concurrency: int = Field(default=16, ge=1)
    """Commands being started at once, not commands running."""
    exec_shell: str | None = None
    """A shell inside the image; None takes bash where there is one, and sh elsewhere."""
    max_output_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """For stdout and stderr each; the middle of longer output is left out."""


class DockerCopy(Section):
    """How files are moved."""

    concurrency: int = Field(default=8, ge=1)
    timeout_s: float = Field(default=600, gt=0)


class DockerHost(Section):
    """One of several engines."""

    host: str
    cert_path: str | None = None
    weight: float = Field(default=1, gt=0)
    """How many sandboxes it takes in comparison with the others."""


def _engine(value: object) -> object:
    return {"host": value} if isinstance(value, str) else value


class DockerOptions(Section):
    """The block `<name>: {docker: {...}}`."""

    host: str | None = None
    """`unix:///path` or `tcp://host:port`; None takes DOCKER_HOST, then Docker's own context, then its usual socket."""
    cert_path: str | None = None
    """Folder with ca.pem, cert.pem and key.pem for an engine over TLS; None takes DOCKER_CERT_PATH under DOCKER_TLS_VERIFY."""
    hosts: list[Annotated[DockerHost, BeforeValidator(_engine)]] = Field(default_factory=list[DockerHost])
    """Several engines in place of `host`: each an address, or `{host, cert_path, weight}`. A sandbox goes where the fewest are."""
    reach_host: HostName | None = None
    """What containers call this machine by, to reach model servers and tools; None finds it, `none` is: they cannot."""
    reach_listen: HostName | None = None
    """The address of this machine at which such calls come in; None takes `reach_host`."""
    request_timeout_s: float = Field(default=60, gt=0)
    """The bound of one small request to the engine."""
    create: DockerCreate = Field(default_factory=DockerCreate)
    exec: DockerExec = Field(default_factory=DockerExec)
    copy_: DockerCopy = Field(default_factory=DockerCopy, alias="copy")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> "DockerOptions":
        if self.hosts and self.host is not None:
            raise ValueError("host stands beside hosts — keep host for one engine, or hosts for several")
        names = [engine.host for engine in self.hosts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"hosts names {', '.join(twice)} more than once — use weight to give an engine more sandboxes")
        return self

    @model_validator(mode="after")
    def _listens_for_somebody(self) -> "DockerOptions":
        if self.reach_listen is not None and self.reach_host in (None, NOWHERE):
            raise ValueError("reach_listen needs a reach_host, which is what containers call — set reach_host")
        return self
