"""The configuration that every command-line harness shares. Times are in seconds."""

from typing import Annotated

from pydantic import Field, model_validator

from gym.config.schema import AgentConfig, ModelRef


class HarnessConfig(AgentConfig):
    """A harness that runs in the task's sandbox."""

    model_server: ModelRef  # pyright: ignore[reportGeneralTypeIssues] - pydantic lets a subclass require what its base does not
    timeout: float = Field(default=10_800, gt=0)
    """The longest that the harness may run; what stands by then is graded."""
    setup_timeout: float = Field(default=900, gt=0)
    """The longest that one step of preparing the sandbox may take."""
    prelude: str = ""
    """Shell commands before the harness starts, in its environment: to activate the project's own, say."""
    max_transcript_bytes: Annotated[int, Field(ge=64 * 1024)] = 64 * 1024 * 1024
    """A harness that prints more is stopped, and what stands is graded."""

    @property
    def in_sandbox(self) -> bool:
        """Whether the harness's bundle is needed, and its model called from the sandbox; a subclass may know of another way."""
        return True


class WindowedConfig(HarnessConfig):
    """Of a harness that is told how much its model can take in and say. Tokens."""

    context_window: int = Field(default=131_072, gt=0)
    """As it comes near them the harness compacts its history."""
    max_output_tokens: int = Field(default=32_768, gt=0)
    """Of one answer of the model."""

    @model_validator(mode="after")
    def _room(self) -> "WindowedConfig":
        if self.max_output_tokens >= self.context_window:
            raise ValueError(
                f"max_output_tokens {self.max_output_tokens} does not fit into context_window {self.context_window} — "
                f"set it below {self.context_window}"
            )
        return self
