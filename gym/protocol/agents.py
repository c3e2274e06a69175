"""The agent server's wire: sessions around `/v1/responses`."""

from typing import Any, Self

from pydantic import Field, model_validator

from gym.protocol.access import SandboxAccess, ToolAccess
from gym.protocol.base import WireReply, WireRequest
from gym.protocol.ids import EpisodeId, TaskId
from gym.protocol.responses import Response


class AgentSeedSessionRequest(WireRequest):
    """`POST /v1/agent_sessions`: what the agent may use during this episode."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[ToolAccess] = Field(default_factory=list[ToolAccess])
    sandbox_access: SandboxAccess | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [access.name for access in self.tool_accesses]
        if len(set(names)) != len(names):
            raise ValueError(f"tool access names must be unique, got {names}")
        return self


class AgentSeedSessionResponse(WireReply):
    """The answer to an opened agent session; the session cookie comes with it."""

    agent_session_id: str


class AgentCloseSessionRequest(WireRequest):
    """`POST /v1/agent_sessions/close`."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId


class AgentCloseSessionResponse(WireReply):
    """What the agent leaves behind. A repeated close gets the same answer again."""

    agent_session_id: str
    agent_observations: dict[str, Any] | None = None
    resources_cookies: dict[str, str] | None = None
    partial_response: Response | None = None
    agent_trajectory: Any = None
