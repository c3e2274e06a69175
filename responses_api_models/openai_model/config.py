"""The configuration of `openai_model`."""

from pydantic import Field, field_validator

from gym.models.calls import Dialect
from gym.models.config import EndpointConfig


class Config(EndpointConfig):
    """An OpenAI-compatible endpoint."""

    dialects: list[Dialect] = Field(default=["responses", "chat_completions"], min_length=1)
    """What the endpoint speaks itself; the rest goes by way of Chat Completions."""

    @field_validator("dialects")
    @classmethod
    def _all_can_be_served(cls, value: list[Dialect]) -> list[Dialect]:
        if "chat_completions" not in value and len(set(value)) < 3:
            raise ValueError("without chat_completions no other dialect can be converted — name all three, or add it")
        return value
