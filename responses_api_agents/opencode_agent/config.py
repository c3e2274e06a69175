"""The configuration of `opencode_agent`."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from gym.harness.config import HarnessConfig


class Config(HarnessConfig):
    """How OpenCode is set up."""

    tool_transports: ClassVar[frozenset[str] | None] = frozenset({"mcp"})

    model_api: Literal["chat_completions", "responses", "messages"] = "chat_completions"
    """The dialect in which it calls the model."""
    context_window: int = Field(default=131_072, gt=0)
    """Tokens; as it comes near them OpenCode compacts its history."""
    max_output_tokens: int = Field(default=32_768, gt=0)
    """Tokens of one answer of the model."""
    thinking: bool = True
    """The model reasons, and its reasoning is kept and sent back."""
    subagents: bool = True
    """OpenCode may start agents of its own for parts of the work."""
    permission: dict[str, Any] = Field(default_factory=dict)
    """OpenCode's own `permission`: what it may do; nobody is there to be asked, so `ask` is a refusal."""
