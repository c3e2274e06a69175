"""A resources server for tests: the weather example, whose tools can be listed, while nobody can shake hands with it."""

from dataclasses import replace

from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.servers.base import RouteSpec
from gym.servers.http import Call, Handler
from resources_servers.example_mcp_weather.app import WeatherServer


def _without_handshake(handler: Handler) -> Handler:
    async def handle(call: Call) -> object:
        if call.json().get("method") == "initialize":
            raise ContractError(503, "no handshake today")
        return await handler(call)

    return handle


class UnheardServer(WeatherServer):
    """It answers `tools/list` to those who do not begin with `initialize`."""

    def route_specs(self) -> list[RouteSpec]:
        """Those of the example."""
        specs = super().route_specs()
        return [replace(spec, handler=_without_handshake(spec.handler)) if spec.path == routes.MCP else spec for spec in specs]
