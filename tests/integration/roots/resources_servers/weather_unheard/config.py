"""The configuration of `weather_unheard`."""

from resources_servers.example_mcp_weather.config import Config

__all__ = ["Config"]
