"""The base of model servers: one model in three dialects, also below a rollout prefix."""

from typing import Any, ClassVar

from gym.config.schema import Kind
from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.servers.base import RouteSpec, Server
from gym.servers.http import Access, Call


class ModelServer(Server):
    """Subclass this to serve a policy model. A dialect that is not overridden answers 501."""

    kind: ClassVar[Kind] = "responses_api_models"

    async def responses(self, call: Call) -> Any:
        """`POST /v1/responses`: answer with a Responses object, or with a `Stream`."""
        raise self._lacks("Responses")

    async def chat_completions(self, call: Call) -> Any:
        """`POST /v1/chat/completions`."""
        raise self._lacks("Chat Completions")

    async def messages(self, call: Call) -> Any:
        """`POST /v1/messages`."""
        raise self._lacks("Messages")

    async def models(self, call: Call) -> Any:
        """`GET /v1/models`."""
        return {"object": "list", "data": []}

    def route_specs(self) -> list[RouteSpec]:
        """The three dialects; a client that goes away stops its call, so that nobody pays for unread tokens."""

        def post(path: str, handler: Any) -> RouteSpec:
            return RouteSpec(path, handler, Access.ROLLOUT, under_rollout=True, leaves_with_client=True, data=True)

        return [
            post(routes.RESPONSES, self.responses),
            post(routes.CHAT_COMPLETIONS, self.chat_completions),
            post(routes.MESSAGES, self.messages),
            RouteSpec(routes.MODELS, self.models, Access.ROLLOUT, "GET", under_rollout=True, data=True),
        ]

    def _lacks(self, dialect: str) -> ContractError:
        return ContractError(501, f"model server {self.context.instance} does not speak the {dialect} dialect")
