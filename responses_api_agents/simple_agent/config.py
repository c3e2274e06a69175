"""The configuration of `simple_agent`."""

from typing import ClassVar

from pydantic import Field

from gym.config.schema import AgentConfig, ModelRef


class Config(AgentConfig):
    """A tool loop over the Responses API."""

    tool_transports: ClassVar[frozenset[str] | None] = frozenset({"direct_http"})

    model_server: ModelRef
    max_steps: int | None = Field(default=None, gt=0)
    """Most model calls in one activation; None leaves that to the model."""
