"""The row schema of the weather example."""

from pydantic import BaseModel, ConfigDict


class Expected(BaseModel):
    """What the verdict looks for."""

    expected_city: str


class TaskData(BaseModel):
    """A row's own fields; the agent never sees them."""

    model_config = ConfigDict(extra="allow")

    verifier_metadata: Expected
