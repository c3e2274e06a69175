"""The configuration of `opencode_agent`."""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from gym.harness.config import WindowedConfig


class Config(WindowedConfig):
    """How OpenCode is set up."""

    tool_transports: ClassVar[frozenset[str] | None] = frozenset({"mcp"})

    model_api: Literal["chat_completions", "responses", "messages"] = "chat_completions"
    """The dialect in which it calls the model."""
    context_window: int = Field(default=131_072, ge=16_000)
    """Tokens; as it comes near them OpenCode compacts its history. What it tells a model of itself and its tools takes about 10,000."""
    thinking: bool = True
    """The model reasons, and its reasoning is kept and sent back."""
    subagents: bool = True
    """OpenCode may start agents of its own for parts of the work."""
    permission: dict[str, Any] = Field(default_factory=dict)
    """OpenCode's own `permission`: what it may do; nobody is there to be asked, so `ask` is a refusal."""

    @field_validator("permission")
    @classmethod
    def _rules(cls, rules: dict[str, Any]) -> dict[str, Any]:
        for tool, rule in rules.items():
            for word in rule.values() if isinstance(rule, dict) else (rule,):
                if word not in ("allow", "ask", "deny"):
                    raise ValueError(f"{tool}: {word!r} is no rule — write allow, ask or deny")
        return rules
