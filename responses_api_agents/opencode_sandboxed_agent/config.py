"""The configuration of `opencode_sandboxed_agent`: OpenCode as rollouts were run before there were sessions. Times in seconds."""

from pydantic import Field

from gym.config.schema import ResourcesServerRef
from responses_api_agents.opencode_agent.config import Config as OpenCodeConfig


class Config(OpenCodeConfig):
    """That of `opencode_agent` with other defaults, and what its episodes need."""

    resources_server: ResourcesServerRef  # pyright: ignore[reportGeneralTypeIssues] - pydantic lets a subclass require what its base does not
    """The server whose tasks it runs, and which judges them."""
    thinking: bool = False
    subagents: bool = False
    context_window: int = Field(default=262_144, gt=0)
    token_id_capture: bool = True
    default_episode_timeout_seconds: float = Field(default=21_600, gt=0)
    """The bound of an episode, cleanup not counted."""
    cleanup_timeout_seconds: float = Field(default=180, gt=0)
    """The bound of each step of cleanup; there are at most three."""
