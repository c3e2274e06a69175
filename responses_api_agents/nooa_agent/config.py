"""The configuration of `nooa_agent`."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gym.config.schema import Section
from gym.harness.config import HarnessConfig

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_REMOVED = {
    "run_timeout_secs": "set default_episode_timeout_seconds of the environment server, whose deadline it is",
}


class Nooa(Section):
    """Which agent, and where it runs."""

    execution_mode: Literal["embedded", "sandboxed"]
    """`embedded`: in the agent server, without any protection; `sandboxed`: in the task's sandbox."""
    agent_class: str = "nooa_bench.bench_agent:BenchAgent"
    """`module:Class`."""
    invocation_adapter: str = "responses_api_agents.nooa_agent.bench_agent_adapter:invoke_bench_agent"
    """`module:function`: how that class is given a task; see `invocation.py`."""
    init_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Arguments of the class beside `llm`, which is the rollout's policy."""

    @field_validator("agent_class", "invocation_adapter")
    @classmethod
    def _is_a_reference(cls, value: str) -> str:
        if not _REFERENCE.fullmatch(value):
            raise ValueError(f"{value!r} names nothing that can be imported — write package.module:name")
        return value

    @field_validator("init_kwargs")
    @classmethod
    def _llm_is_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "llm" in value:
            raise ValueError("'llm' is reserved for the rollout's policy, which model_server names — remove it")
        return value


class Config(HarnessConfig):
    """How NOOA is set up."""

    tool_transports: ClassVar[frozenset[str] | None] = frozenset({"direct_http"})
    time_ceiling: ClassVar[str | None] = "timeout"

    nooa: Nooa
    """What is run: NOOA's agent, and where."""
    timeout: float = Field(default=21_420, gt=0)
    """The ceiling of the worker, wherever it runs; what stands by then is graded."""
    max_policy_calls: Annotated[int, Field(gt=0)] | None = None
    """Model calls of the whole rollout, agents within agents included; null: no limit but the model server's."""
    context_window: int = Field(default=131_072, gt=0)
    """Tokens; as it comes near them NOOA archives its history."""

    @property
    def in_sandbox(self) -> bool:
        """Whether the runtime for sandboxes is needed."""
        return self.nooa.execution_mode == "sandboxed"

    @model_validator(mode="before")
    @classmethod
    def _nothing_removed(cls, data: Any) -> Any:
        for name, instead in _REMOVED.items():
            if isinstance(data, dict) and name in data:
                raise ValueError(f"{name} is no field of nooa_agent any more — remove it, and {instead}")
        return data
