"""A tool over MCP: the agent must ask for the weather of a city, and tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from gym.protocol.resources import BaseVerifyRequest
from gym.protocol.responses import output_text
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, Verdict, parse, tool
from resources_servers.example_mcp_weather.config import Config
from resources_servers.example_mcp_weather.task_data import TaskData


def weather(city: str) -> str:
    """What the weather is like, in the words that the answer must have."""
    return f"The weather in {city} is sunny and 72 F."


class GetWeather(BaseModel):
    """The tool's arguments."""

    city: str = Field(description="The city's name")


@dataclass
class Asked:
    """What one session remembers."""

    expected_city: str
    cities: list[str] = field(default_factory=list[str])
    """The cities that were asked for, in order."""


class WeatherServer(ResourcesServer[Asked]):
    """Reward 1 if the tool was called for the row's city and the answer says what it said, else 0."""

    config: Config
    _providers: Mapping[str, Provider] = {}

    async def start(self) -> None:
        """Make the provider, where sandboxes are asked for."""
        name = self.config.sandbox_provider
        if name is not None:
            self._providers = {name: provider_from_block(name, self.context.sandbox_providers[name])}

    async def stop(self) -> None:
        """Close the sessions, then the provider."""
        await super().stop()
        for provider in self._providers.values():
            await provider.aclose()

    async def seed(self, session: ResourcesSession[Asked], task_data: dict[str, Any]) -> None:
        """Note what is expected; lend a sandbox."""
        session.state = Asked(parse(TaskData, task_data, "the row").verifier_metadata.expected_city)
        for name, provider in self._providers.items():
            leases = self.context.leases.at(name)
            owner = Ownership(self.context.run_id, self.context.instance, session_id=session.id)
            box = await OwnedSandbox.start(provider, self.config.sandbox_config, owner, leases=leases)
            session.on_release("the sandbox", box.stop)
            session.sandbox_access = box.serialize(name)

    @tool
    async def get_weather(self, session: ResourcesSession[Asked], arguments: GetWeather) -> dict[str, Any]:
        """Tell the weather of a city."""
        session.state.cities.append(arguments.city)
        return {"city": arguments.city, "weather": weather(arguments.city)}

    async def verify(self, session: ResourcesSession[Asked] | None, request: BaseVerifyRequest) -> Verdict:
        """The calls are those that came here, whatever the transcript says."""
        if session is None:
            return Masked("session_lost", "what was asked is known to the session alone, and this request has none")
        asked = session.state
        called = asked.expected_city in asked.cities
        told = weather(asked.expected_city) in output_text(request.response.output)
        return Scored(float(called and told), {"tool_called": called, "weather_told": told, "cities_asked": asked.cities})
