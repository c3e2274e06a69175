"""A counter per session: shows how an environment keeps state apart between rollouts."""

from typing import Any

from pydantic import BaseModel

from gym.protocol.resources import BaseVerifyRequest
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, Verdict, parse, tool
from resources_servers.example_session_state_mgmt.task_data import TaskData


class Increment(BaseModel):
    """The tool's arguments."""

    count: int


class Counter:
    """One session's counter."""

    def __init__(self, value: int, expected: int) -> None:
        self.value = value
        self.expected = expected


class CounterServer(ResourcesServer[Counter]):
    """Reward 1 if the counter stands where the row says, else 0."""

    async def seed(self, session: ResourcesSession[Counter], task_data: dict[str, Any]) -> None:
        """Set the counter to the row's initial count."""
        task = parse(TaskData, task_data, "the row")
        session.state = Counter(task.initial_count, task.expected_count)

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
        counter = session.state
        return Scored(1.0 if counter.value == counter.expected else 0.0, {"final_count": counter.value})
