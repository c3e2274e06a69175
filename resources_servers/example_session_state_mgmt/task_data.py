"""The row schema of the counter example."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row's own fields: where the counter starts, and where it must end."""

    model_config = ConfigDict(extra="allow")

    initial_count: int = 0
    expected_count: int
