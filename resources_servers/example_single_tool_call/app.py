"""The smallest environment with a tool: the agent must ask for the weather once."""

from typing import Any

from pydantic import BaseModel

from gym.protocol.resources import BaseVerifyRequest
from gym.protocol.responses import function_calls
from gym.servers import ResourcesServer, ResourcesSession, Scored, tool


class GetWeather(BaseModel):
    """The tool's arguments."""

    city: str


class WeatherServer(ResourcesServer[None]):
    """Reward 1 if the weather was asked for, else 0. It keeps no state, so verdicts can be made again."""

    reverify_mode = "stateless"

    @tool
    async def get_weather(self, session: ResourcesSession[None], arguments: GetWeather) -> dict[str, Any]:
        """Tell the weather of a city."""
        return {"city": arguments.city, "weather_description": f"The weather in {arguments.city} is cold."}

    async def verify(self, session: ResourcesSession[None] | None, request: BaseVerifyRequest) -> Scored:
        """Look for the call in what the agent did."""
        called = any(call["name"] == "get_weather" for call in function_calls(request.response.output))
        return Scored(1.0 if called else 0.0)
