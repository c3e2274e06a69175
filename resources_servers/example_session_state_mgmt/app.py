"""A counter per session: shows how an environment keeps state apart between rollouts."""

from typing import Any

from pydantic import BaseModel

from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, Verdict, tool
from resources_servers.example_session_state_mgmt.task_data import TaskData


class Increment(BaseModel):
    """The tool's arguments."""

    count: int


class Counter:
    """One session's counter."""

    def __init__(self, value: int) -> None:
        self.value = value


class CounterServer(ResourcesServer[Counter]):
    """Reward 1 if the counter stands where the row says, else 0."""

    async def seed(self, session: ResourcesSession[Counter], task_data: dict[str, Any]) -> None:
        """Set the counter to the row's initial count."""
        initial = task_data.get("initial_count", 0)
        if isinstance(initial, bool) or not isinstance(initial, int):
            raise ContractError(422, f"initial_count must be a whole number, got {initial!r}")
        session.state = Counter(initial)

    @tool
    async def increment_counter(self, session: ResourcesSession[Counter], arguments: Increment) -> dict[str, Any]:
        """Add to the counter."""
        session.state.value += arguments.count
        return {"success": True}

    @tool
    async def get_counter_value(self, session: ResourcesSession[Counter]) -> dict[str, Any]:
        """Tell the counter's value."""
        return {"count": session.state.value}

    async def verify(self, session: ResourcesSession[Counter] | None, request: BaseVerifyRequest) -> Verdict:
        """Compare the counter with the row's expected count."""
        if session is None:
            return Masked("session_lost", "the counter lives in a session, and this request has none")
        expected = TaskData.model_validate(request.task_data()).expected_count
        return Scored(1.0 if session.state.value == expected else 0.0, {"final_count": session.state.value})
