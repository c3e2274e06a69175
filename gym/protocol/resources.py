"""The resources server's wire: seed, verify, close.

Two forms live side by side. The typed form carries the caller's session id, episode and task;
the old form is an empty or flat body, and its session is known by the cookie alone.
"""

from typing import Any, Generic, Literal, TypeVar

from pydantic import Field

from gym.protocol.access import MCPServerMetadata, SandboxAccess
from gym.protocol.base import OpenReply, WireReply, WireRequest
from gym.protocol.ids import EpisodeId, TaskId
from gym.protocol.responses import Response, ResponseCreateParams

VerificationInput = TypeVar("VerificationInput")

ReverifyMode = Literal["stateless", "seeded", "unsupported"]
"""How a stored rollout is verified again, without its agent.

`stateless`: verify needs no session. `seeded`: it needs what seed makes of the row, and nothing that an agent did in
the session. `unsupported`: it needs what the agent did there, which is gone.
"""


class ResourcesSeedSessionRequest(WireRequest):
    """`POST /seed_session`, typed form: the id is the caller's, so a lost reply can still be closed."""

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, Any]


class ResourcesSeedSessionResponse(WireReply):
    """The answer to a typed seed; the session cookie comes with it."""

    resources_session_id: str
    resources_tools: MCPServerMetadata | None = None
    sandbox_access: SandboxAccess | None = None


class ResourcesCloseSessionRequest(WireRequest):
    """`POST /close_session`."""

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId


class ResourcesCloseSessionResponse(WireReply):
    """The answer to a close; the same for a session that was never open."""

    resources_session_id: str


class BaseVerifyRequest(OpenReply):
    """`POST /verify`, flat form: the task's own fields stand beside these two and are kept."""

    responses_create_params: ResponseCreateParams
    response: Response

    def task_data(self) -> dict[str, Any]:
        """The task's fields: everything that is not part of the exchange."""
        return dict(self.model_extra or {})


class BaseVerifyResponse(BaseVerifyRequest):
    """The same fields back, with the verdict. `mask_sample` says that `reward` is no measurement."""

    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None


class ResourcesVerifyRequest(WireRequest, Generic[VerificationInput]):
    """The typed verify, for environment servers of other protocols."""

    episode_id: EpisodeId
    task_id: TaskId
    verification_input: VerificationInput


class ResourcesVerifyResponse(OpenReply):
    """The answer to a typed verify; a benchmark's own fields are kept."""

    reward: float
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None
