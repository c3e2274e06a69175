"""The configuration of `hermes_agent`."""

from typing import Any, ClassVar

from pydantic import Field

from gym.harness.config import HarnessConfig


class Config(HarnessConfig):
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
    max_output_tokens: int = Field(default=32_768, gt=0)
    """Tokens of one answer of the model."""
    compaction: bool = True
    """Whether the history is compacted; otherwise the run ends where the context does."""
    compaction_threshold: float = Field(default=0.85, gt=0, le=1)
    """The part of the context that may be full before that."""
    request_overrides: dict[str, Any] = Field(default_factory=dict)
    """Fields of every model call, e.g. `extra_body: {chat_template_kwargs: …}`."""
