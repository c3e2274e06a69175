"""The row schema of mathematical questions."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _as_text(value: Any) -> Any:
    """A number is written out: data sets hold either."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


class TaskData(BaseModel):
    """A row's own fields: what was asked, and the answer that counts as right (a number, or LaTeX with or without `$` or `\\boxed{}`)."""

    model_config = ConfigDict(extra="allow")

    question: str
    expected_answer: Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
