"""The configuration that model servers before an OpenAI-compatible endpoint share."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from gym.config.schema import ModelConfig, check_address


class EndpointConfig(ModelConfig):
    """One model at one or several endpoints that are alike. Times in seconds."""

    base_url: str | Annotated[list[str], Field(min_length=1)]
    """The endpoint's base, usually ending in /v1. Of several, each rollout stays at one."""
    api_key: str = "EMPTY"
    """The key that the endpoint wants; from env.yaml."""
    model: str
    """The model's name at the endpoint; it replaces whatever a request names."""
    timeout_seconds: float = Field(default=3_600, gt=0)
    """The longest wait for one whole answer."""
    max_retries: int = Field(default=5, ge=0)
    """Further tries after a 408, 409, 425, 429, 5xx or a broken connection."""
    max_concurrency: int | None = Field(default=None, gt=0)
    """Most requests in flight at each endpoint."""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """Sent with every call to the endpoint."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields of every request that does not set them itself."""
    sampling_overrides: dict[str, Any] = Field(default_factory=dict)
    """Fields of every request, whatever it says itself."""
    context_overflow: Literal["length", "error"] = "length"
    """A prompt that is too long for the model ends the turn as `length`, with nothing generated, or is the endpoint's error."""

    @field_validator("base_url")
    @classmethod
    def _are_addresses(cls, value: str | list[str]) -> str | list[str]:
        urls = [value] if isinstance(value, str) else value
        if len(set(urls)) != len(urls):
            raise ValueError("an endpoint is named twice — remove one of the two")
        for url in urls:
            check_address(url)
        return value

    @field_validator("api_key")
    @classmethod
    def _is_one_line(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("a key has a line break or another control character in it — write it on one line")
        return value

    @field_validator("extra_body", "sampling_overrides")
    @classmethod
    def _leaves_the_call_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        if reserved := sorted({"model", "stream", "stream_options"} & value.keys()):
            raise ValueError(
                f"{', '.join(reserved)} cannot be set here: 'model' has its own key, and streaming is the client's choice — remove it"
            )
        return value

    @property
    def base_urls(self) -> list[str]:
        """The endpoints, as a list."""
        return [self.base_url] if isinstance(self.base_url, str) else self.base_url
