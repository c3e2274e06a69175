"""The options of the `local` provider: its configuration block, and what one spec may set.

Light on purpose, so that checking a configuration does not load the provider. Unknown keys are
errors. Times are in seconds.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gym.config.schema import Section

NAME = "local"

_NEVER = ("/", "/proc", "/dev", "/sys", "/run", "/tmp", "/work", "/home", "/etc")


def _visible(path: str) -> str:
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts or str(pure) in _NEVER or pure.parts[1:2] in (("proc",), ("dev",), ("sys",)):
        raise ValueError(
            f"{path!r} cannot be shown — give an absolute path that is not one of {', '.join(_NEVER)}, nor in /proc, /dev or /sys"
        )
    return str(pure)


HostPath = Annotated[str, AfterValidator(_visible)]


class LocalIsolation(Section):
    """How a sandbox is closed in. In a spec's `provider_options` a field that is set replaces the block's."""

    network: Literal["none", "host"] = "none"
    """`none`: a network of its own with nothing but its loopback; `host`: ours, abstract sockets included."""
    visible: list[HostPath] = Field(default_factory=list[str])
    """Host paths that can be read at the same place in the sandbox, beside the system's programs and libraries."""
    pids_limit: Annotated[int, Field(ge=4)] | None = 1024
    """Processes and threads of the sandbox's commands together."""


class LocalCreate(LocalIsolation):
    """How sandboxes are made."""

    default_ttl_s: float = Field(default=86_400, gt=0)
    """For specs without `ttl_s`."""
    concurrency: int = Field(default=8, ge=1)
    """Sandboxes being created at once, not sandboxes running."""


class LocalExec(Section):
    """How commands are run."""

    default_timeout_s: float = Field(default=180, gt=0)
    max_output_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """For stdout and stderr each; the middle of longer output is left out."""


class LocalOptions(Section):
    """The block `<name>: {local: {...}}`."""

    unconfined: bool = False
    """Run without namespaces: commands are plain processes of this user that can read and change whatever the user can."""
    bwrap: str = "bwrap"
    """The bubblewrap program: a name on PATH, or a path."""
    root: Path | None = None
    """Where sandboxes keep their work trees; None takes `sandboxes` in the state folder ($GYM_STATE_DIR)."""
    create: LocalCreate = Field(default_factory=LocalCreate)
    exec: LocalExec = Field(default_factory=LocalExec)
