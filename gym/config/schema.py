"""The configuration models that server authors extend, and the top-level settings.

An implementation's own model lives in `config.py` beside its `app.py`, is named `Config` and
extends the base of its kind. It is imported when a config is checked, so it must import nothing
heavy. Unknown keys are errors.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

Kind = Literal["resources_servers", "responses_api_agents", "responses_api_models", "environment_servers"]

KINDS: tuple[Kind, ...] = ("resources_servers", "responses_api_agents", "responses_api_models", "environment_servers")


class Section(BaseModel):
    """A part of a configuration: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class MustExist:
    """Marks a field that names a file: it is looked for as every path of a configuration is, and missed before anything starts."""


class ServerRef(BaseModel, extra="forbid", frozen=True):
    """A reference to another instance."""

    type: Kind
    name: str = Field(min_length=1)


class ResourcesServerRef(ServerRef, frozen=True):
    """A reference that only a resources server can satisfy."""

    type: Literal["resources_servers"]


class AgentRef(ServerRef, frozen=True):
    """A reference that only an agent can satisfy."""

    type: Literal["responses_api_agents"]


class ModelRef(ServerRef, frozen=True):
    """A reference that only a model server can satisfy."""

    type: Literal["responses_api_models"]


class Dataset(Section):
    """A set of task rows that an instance serves."""

    name: str
    """What `--dataset` takes."""
    type: Literal["train", "validation", "example", "benchmark"]
    """Training, validation, a few rows that are committed with the server, or a benchmark, which needs a prepare_script."""
    jsonl_fpath: Path
    """The rows, one JSON object a line."""
    taskset: str | None = None
    """What its tasks are called on the wire and in results; rows find their environment by it."""
    prepare_script: Path | None = None
    """The script that makes the rows."""
    num_repeats: int = Field(default=1, ge=1)
    """Rollouts for each row, unless `--num-repeats` says otherwise."""
    license: str | None = None
    """The rows' licence: an SPDX name, or one of the ecosystem's; an unknown one is a warning."""
    source: dict[str, Any] | None = None
    """Where the rows come from; for people."""

    @model_validator(mode="after")
    def _benchmark_is_prepared(self) -> "Dataset":
        if self.type == "benchmark" and self.prepare_script is None:
            raise ValueError("type benchmark needs a prepare_script, so that its rows can be made again — add prepare_script: <the script>")
        return self


def check_address(value: str) -> str:
    """Return `value` if it is an HTTP address. A wrong one would otherwise be found out by every episode, after all its retries."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        usable = False
    else:
        if parts.username is not None or parts.password is not None:
            raise ValueError("an address must not carry a user or a password, since it is shown and recorded — use a key or a header")
    if not usable:
        raise ValueError(f"{value!r} is not an address that can be called — write http://host:port or https://host")
    return value


class ServerConfig(Section):
    """What every instance may set. Times are in seconds."""

    entrypoint: str = "app.py"
    """The file with the server's class, in the implementation's folder."""
    host: str | None = None
    """Where it listens; null takes the setting `default_host`."""
    port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The port it listens on; null or 0 takes a free one."""
    url: str | None = None
    """The instance runs elsewhere: its base URL, in place of an entrypoint."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Sent with every call to an instance that runs elsewhere."""
    description: str | None = None
    """For people."""

    @field_validator("url")
    @classmethod
    def _url_can_be_called(cls, url: str | None) -> str | None:
        return None if url is None else check_address(url)


class ResourcesServerConfig(ServerConfig):
    """A resources server: a task's state, tools, sandbox and verdict."""

    domain: str | None = None
    """What the tasks are about, e.g. `coding`; for lists."""
    verified: bool = False
    """Whether somebody has checked the tasks; for lists."""
    verified_url: str | None = None
    """Where that is written down."""
    value: str | None = None
    """What the environment is good for; for people."""
    datasets: list[Dataset] = Field(default_factory=list[Dataset])
    """Its data sets; see [Data sets](#data-sets)."""
    allowed_agents: list[str] | None = None
    """Implementations of agents that may be paired with this server; None allows all."""
    expose_gold_to: list[str] = Field(default_factory=list)
    """Implementations of agents that may ask for the gold solution; see docs/contract.md."""
    expose_tools_over_mcp: bool = False
    """Serve the tools over MCP as well, for agents that are granted them so."""
    session_ttl_seconds: float = Field(default=86_400, gt=0)
    """A session that nobody closes is closed after so long."""
    session_receipt_seconds: float = Field(default=3_600, gt=0)
    """How long the answer of a closed session is kept, for a caller that asks once more."""


class AgentConfig(ServerConfig):
    """An agent: a harness that acts."""

    model_server: ModelRef | None = None
    """The model it asks."""
    resources_server: ResourcesServerRef | None = None
    """Of agents that run whole rollouts by themselves: the server that judges them."""
    datasets: list[Dataset] = Field(default_factory=list[Dataset])
    """Data sets in the old form, where they hung on the agent."""
    tool_transports: ClassVar[frozenset[str] | None] = None
    """The ways to a task's tools that the implementation can use; None where it does not say."""
    time_ceiling: ClassVar[str | None] = None
    """The field with the longest that one activation may take (seconds), where the episode must not cut it short."""
    token_id_capture: bool = False
    """Record its model calls with token ids, where the setting `token_id_capture` is on."""
    check_reach: bool = True
    """Before a harness first runs in a sandbox of a provider block, try from inside whether it reaches its servers."""
    session_ttl_seconds: float = Field(default=86_400, gt=0)
    """A session that nobody closes is closed after so long."""
    session_receipt_seconds: float = Field(default=3_600, gt=0)
    """How long the answer of a closed session is kept, for a caller that asks once more."""

    @property
    def in_sandbox(self) -> bool:
        """Whether it works inside the task's sandbox, and calls its model from there."""
        return False


class ModelConfig(ServerConfig):
    """A model server: the policy model, and the record of every call to it."""

    max_calls_per_rollout: Annotated[int, Field(gt=0)] | None = None
    """Model calls that one attempt may make; one more is refused, and what stands is graded."""
    max_tokens_per_rollout: Annotated[int, Field(gt=0)] | None = None
    """Input and output of all answered calls together; looked at before each call."""
    max_failed_calls_in_a_row: Annotated[int, Field(gt=0)] | None = 20
    """A rollout whose calls fail so often, one after the other, is refused more, and fails; null: never."""
    keep_alive_seconds: float = Field(default=15, ge=0)
    """A streamed reply that is silent for so long gets a comment, so that no proxy cuts it; 0: never."""


class EnvironmentServerConfig(ServerConfig):
    """An environment server: the order of calls, limits and cleanup of one episode."""

    max_concurrent_episodes: Annotated[int, Field(gt=0)] | None = None
    """How many run at once; others wait for a place."""
    queue_timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """How long one may wait for a place; required with max_concurrent_episodes."""
    max_queued_episodes: Annotated[int, Field(ge=0)] | None = None
    """How many may wait for a place; one more is turned away with 503 and Retry-After, which costs its caller no attempt."""
    default_episode_timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """The bound of an episode, cleanup not counted."""
    cleanup_timeout_seconds: float = Field(default=180, gt=0)
    """The bound of each cleanup callback; at most three run, one after the other."""

    @property
    def longest_run_seconds(self) -> float | None:
        """How long `/run` may take its caller: all its limits, and a hundredth of them (10 to 120 s) for the way; None without a limit."""
        if self.default_episode_timeout_seconds is None:
            return None
        limits = self.default_episode_timeout_seconds + (self.queue_timeout_seconds or 0.0) + 3 * self.cleanup_timeout_seconds
        return limits + min(max(limits / 100, 10.0), 120.0)

    @model_validator(mode="after")
    def _queue_is_bounded(self) -> "EnvironmentServerConfig":
        if self.max_concurrent_episodes is not None and self.queue_timeout_seconds is None:
            raise ValueError(
                "max_concurrent_episodes needs queue_timeout_seconds, so that nobody waits without end — set queue_timeout_seconds"
            )
        return self


BASE_CONFIGS: dict[Kind, type[ServerConfig]] = {
    "resources_servers": ResourcesServerConfig,
    "responses_api_agents": AgentConfig,
    "responses_api_models": ModelConfig,
    "environment_servers": EnvironmentServerConfig,
}


class TokenIdCapture(Section):
    """Which agents' model calls are recorded with token ids."""

    enabled: bool = False
    all_agents: bool = False


class HeadServer(Section):
    """Where the head server listens; port 0 takes any free one."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class Auth(Section):
    """Where the run's bearer token comes from; without it a fresh one is made."""

    token_file: Annotated[Path | None, MustExist()] = None


def _off(value: Any) -> Any:
    """A bare `off` is false to YAML."""
    return "off" if value is False else value


class Settings(Section):
    """The top-level settings: everything in a config that is neither an instance nor a sandbox provider."""

    default_host: str = "127.0.0.1"
    use_absolute_ip: bool = False
    policy_base_url: str | list[str] | None = None
    policy_api_key: str | None = None
    policy_model_name: str | None = None
    token_id_capture: TokenIdCapture = Field(default_factory=TokenIdCapture)
    observability_enabled: bool = False
    environment_server_routes: dict[str, str] = Field(default_factory=dict)
    auth: Annotated[Auth | Literal["off"], BeforeValidator(_off)] = Field(default_factory=Auth)
    isolation: Literal["process", "colocated"] | None = None
    head_server: HeadServer = Field(default_factory=HeadServer)
    start_timeout_seconds: float = Field(default=600, gt=0)
    drain_timeout_seconds: float = Field(default=30, gt=0)
    cache_dir: Path | None = None
    log_dir: Path | None = None
    """Where server logs are written and kept; by default they go with the run, unless a server crashed."""
    agent_name: str | None = None
    """The collector's own: which agent's environment rows go to; never compared with a running head."""
