"""The configuration of `hermes_agent`."""

from typing import Any, ClassVar

from pydantic import Field, field_validator

from gym.config.errors import did_you_mean
from gym.harness.config import WindowedConfig

TOOLSETS = frozenset(
    """browser clarify code_execution coding computer_use context_engine cronjob debugging delegation file image_gen kanban memory
    project safe search session_search skills terminal todo tts video video_gen vision web x_search""".split()  # noqa: SIM905
)
"""Of the pinned version, those of messengers and homes aside."""
_REQUEST = frozenset(
    """extra_body extra_headers extra_query frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata
    parallel_tool_calls presence_penalty reasoning_effort response_format seed service_tier stop temperature timeout tool_choice
    top_logprobs top_p user""".split()  # noqa: SIM905
)
"""What a call may be given beside what Hermes itself says in it."""


class Config(WindowedConfig):
    """How Hermes is set up."""

    tool_transports: ClassVar[frozenset[str] | None] = frozenset()

    toolsets: list[str] = Field(default=["terminal", "file"], min_length=1)
    """Of Hermes' own tools. Others may want packages or a network that are not there."""
    max_turns: int = Field(default=90, gt=0)
    """Model calls of one run, sub-agents' aside; then Hermes asks for a summary, and what stands is graded."""
    terminal_timeout: int = Field(default=180, gt=0)
    """Seconds for one command, unless the model asks for more."""
    context_window: int = Field(default=131_072, ge=64_000)
    """Tokens; as it comes near them Hermes compacts its history. It refuses to work with fewer than 64,000."""
    compaction: bool = True
    """Whether the history is compacted; otherwise the run ends where the context does."""
    compaction_threshold: float = Field(default=0.85, gt=0, le=1)
    """The part of the context that may be full before that."""
    request_overrides: dict[str, Any] = Field(default_factory=dict)
    """Fields of every model call, e.g. `extra_body: {chat_template_kwargs: …}`."""

    @field_validator("toolsets")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in TOOLSETS:
                raise ValueError(f"Hermes has no toolset {name!r} — {did_you_mean(name, TOOLSETS)}")
        return names

    @field_validator("request_overrides")
    @classmethod
    def _of_a_call(cls, fields: dict[str, Any]) -> dict[str, Any]:
        for name in fields:
            if name not in _REQUEST:
                hint = did_you_mean(name, _REQUEST)
                raise ValueError(f"{name!r} cannot be set for a model call — {hint}; fields of an endpoint's own go into extra_body")
        return fields
