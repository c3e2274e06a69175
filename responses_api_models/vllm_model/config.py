"""The configuration of `vllm_model`."""

from typing import Any, Literal

from pydantic import Field

from gym.models.config import EndpointConfig


class Config(EndpointConfig):
    """vLLM engines that serve one model, with parsers for its reasoning and its tool calls of their own."""

    return_token_id_information: bool = False
    """Ask for token ids at every call, and put them into whole replies (`prompt_token_ids`, `generation_token_ids` and
    `generation_log_probs` at the last output item, or the message), for trainers that read them there. Calls under
    token capture are recorded with their ids without it."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Given to the chat template, where a request does not say otherwise; e.g. {enable_thinking: false}."""
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = "reasoning"
    """Where an assistant message of the history carries its reasoning; null leaves reasoning out of the history."""
    replace_developer_role_with_system: bool = True
    """Most chat templates do not know the developer role."""
