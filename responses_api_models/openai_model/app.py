"""A policy model behind any OpenAI-compatible endpoint."""

from gym.servers import ServerContext
from gym.servers.endpoint_models import EndpointModel
from responses_api_models.openai_model.config import Config


class OpenAIModel(EndpointModel):
    """The policy model of most evaluations."""

    config: Config

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        self.native = frozenset(config.dialects)
