"""What differs between two command-line harnesses, and the data that goes to and fro.

Invariant: an adapter does no I/O in the sandbox. It says what to start and reads what was written; the runner does the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from gym.harness.bundle import Bundle
from gym.protocol.responses import Item, ResponseCreateParams

STDOUT = "stdout"
"""The file of the evidence folder that has what the harness printed."""


@dataclass(frozen=True)
class ModelAccess:
    """How code in the sandbox calls the model: a base URL below the rollout's prefix, and a token that opens nothing else."""

    base_url: str
    """Ends with `/v1`."""
    token: str = field(repr=False)


@dataclass(frozen=True)
class MCPServer:
    """Tools of the task, as code in the sandbox calls them over MCP (streamable HTTP)."""

    name: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """They open the tools of this session, and nothing else."""
    tools: tuple[str, ...]
    """What it offers, by name."""
    required: bool
    """A harness that cannot connect to it must not go on without it: its run has failed, and measures nothing."""


@dataclass(frozen=True)
class Place:
    """Where a harness is in its sandbox; all are absolute paths there."""

    session: str
    """A fresh folder outside of the work tree."""
    binaries: str
    """The bundle's files."""
    workdir: str

    @property
    def home(self) -> str:
        """The harness's own home, empty at first."""
        return f"{self.session}/home"


@dataclass(frozen=True)
class Launch:
    """One command. Secrets belong into `env`; the prompt comes on standard input, so that its length and signs do not matter."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    path: str
    """A folder that is added to PATH."""


@dataclass(frozen=True)
class Ending:
    """How the command ended."""

    return_code: int
    seconds: float
    stderr: str = ""
    stopped: Literal["agent_timeout", "transcript_limit"] | None = None
    """What we ended it for, if it did not end by itself."""
    oom_killed: bool = False


@dataclass
class Transcript:
    """What a harness did, in the Responses dialect. It was written in the sandbox: evidence, never a measurement."""

    items: list[Item] = field(default_factory=list[Item])
    outcome: Literal["completed", "incomplete", "failed"] = "completed"
    """`incomplete` is the agent's own doing, and what stands is graded; `failed` measures nothing."""
    reason: str = ""
    """Why it is not completed: a word for `incomplete`, a sentence for `failed`."""
    terminal: bool = False
    """A failure that the next attempt would meet again."""
    kind: str = "agent_run_error"
    """Of a failure."""
    cookies: dict[str, str] | None = None
    """The resources server's cookies, for a harness that calls the task's tools itself."""
    trajectory: dict[str, Any] | None = None
    observations: dict[str, Any] = field(default_factory=dict[str, Any])


class Adapter(Protocol):
    """One harness."""

    @property
    def title(self) -> str:
        """Its name for people, e.g. `OpenCode`."""
        ...

    @property
    def bundle(self) -> Bundle:
        """What it needs in the sandbox."""
        ...

    @property
    def kept(self) -> tuple[str, ...]:
        """Files below its home that are brought into the evidence folder, by their last names, once nothing of it runs."""
        ...

    def launch(self, params: ResponseCreateParams, model: ModelAccess, place: Place, servers: tuple[MCPServer, ...]) -> Launch:
        """The command. Raises ContractError (422) for parameters that it cannot honour.

        There are `servers` only where `mcp` is among the `tool_transports` of the agent's configuration.
        """
        ...

    def tool_name(self, server: str, tool: str) -> str:
        """What it calls a tool of an MCP server."""
        ...

    def read(self, evidence: Path, ending: Ending | None) -> Transcript:
        """What the command printed and kept, as far as it came: the folder `evidence` has it.

        `ending` is None where it was cut off by the close. Called in a thread.
        """
        ...
