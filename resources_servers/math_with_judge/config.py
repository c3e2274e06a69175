"""The configuration of `math_with_judge`."""

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from gym.config.schema import ModelRef, ResourcesServerConfig


class Config(ResourcesServerConfig):
    """Mathematical answers, compared by a library first and by a judge second. Times are in seconds."""

    should_use_judge: bool = True
    """Ask the judge where the library does not find the answer right."""
    judge_model_server: ModelRef | None = None
    """The model server of the judge; it may be the policy\'s own."""
    judge_responses_create_params: dict[str, Any] = Field(default_factory=dict)
    """Fields of every request to the judge, such as `temperature` or `max_output_tokens`."""
    judge_timeout_seconds: float = Field(default=600, gt=0)
    """The longest wait for one answer of the judge; it is asked at most twice."""
    require_boxed: bool = True
    """Only `\\boxed{}` is an answer; else, where there is none, the library looks for one in the text."""
    library_workers: int = Field(default=2, gt=0)
    """Processes that compare; one is started at once, the others when they are needed."""
    library_timeout_seconds: int = Field(default=10, gt=0)
    """The longest time for one comparison."""

    @field_validator("judge_responses_create_params")
    @classmethod
    def _leaves_the_question_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        if wrong := sorted(key for key in ("input", "stream", "tools") if value.get(key)):
            raise ValueError(f"{', '.join(wrong)} cannot be set here: what the judge is asked is made for each answer")
        return {key: entry for key, entry in value.items() if key not in ("input", "stream", "tools")}

    @model_validator(mode="after")
    def _a_judge_is_named(self) -> Self:
        if self.should_use_judge and self.judge_model_server is None:
            raise ValueError("should_use_judge needs judge_model_server, a reference to a model server; or set should_use_judge: false")
        return self
