"""The configuration of `openai_model`."""

from pydantic import Field, field_validator

from gym.config.schema import ModelConfig, check_address


class Config(ModelConfig):
    """An OpenAI-compatible endpoint. Times in seconds."""

    base_url: str
    """The endpoint's base, usually ending in /v1."""
    api_key: str = "EMPTY"
    model: str
    """The model's name at the endpoint; it replaces whatever a request names."""
    timeout_seconds: float = Field(default=3_600, gt=0)
    """The longest wait for one whole answer."""
    max_retries: int = Field(default=5, ge=0)
    """Further tries after a 408, 409, 425, 429, 5xx or a broken connection."""
    max_concurrency: int | None = Field(default=None, gt=0)
    """Most requests in flight at the endpoint."""
    extra_headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        return check_address(value)
