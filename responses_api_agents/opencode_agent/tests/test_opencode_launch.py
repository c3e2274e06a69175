"""What OpenCode is started with."""

import json
from typing import Any

import pytest

from gym.harness.adapter import Launch, MCPServer, ModelAccess, Place
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.opencode_agent.adapter import OpenCode
from responses_api_agents.opencode_agent.config import Config

PLACE = Place("/tmp/s", "/opt/b", "/testbed")
MODEL = ModelAccess("http://host:1/ng-rollout/r/v1", "the-token")


def launch(params: dict[str, Any] | None = None, servers: tuple[MCPServer, ...] = (), **config: Any) -> tuple[Launch, dict[str, Any]]:
    made = Config.model_validate({"model_server": {"type": "responses_api_models", "name": "policy_model"}, **config})
    found = OpenCode(made).launch(ResponseCreateParams.model_validate({"input": "x", **(params or {})}), MODEL, PLACE, servers)
    return found, json.loads(found.env["OPENCODE_CONFIG_CONTENT"])


def test_the_token_is_in_the_environment_alone() -> None:
    found, settings = launch()
    assert "the-token" not in " ".join(found.argv)
    options = settings["provider"]["gym"]["options"]
    assert (options["apiKey"], options["baseURL"]) == ("the-token", "http://host:1/ng-rollout/r/v1")
    assert "the-token" not in repr(MODEL)


def test_nothing_of_it_lies_in_the_work_tree_or_in_the_images_home() -> None:
    found, _ = launch()
    assert "HOME" not in found.env  # the project's own caches may lie there
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "OPENCODE_TEST_HOME"):
        assert found.env[name].startswith("/tmp/s/home")


@pytest.mark.parametrize(
    ("api", "package"),
    [("chat_completions", "@ai-sdk/openai-compatible"), ("responses", "@ai-sdk/openai"), ("messages", "@ai-sdk/anthropic")],
)
def test_each_dialect_has_its_client(api: str, package: str) -> None:
    assert launch(model_api=api)[1]["provider"]["gym"]["npm"] == package


def test_switches() -> None:
    assert "--thinking" in launch()[0].argv
    found, settings = launch({"temperature": 0.5, "top_p": 0.9}, thinking=False, subagents=False, permission={"bash": "deny"})
    assert "--thinking" not in found.argv
    assert settings["tools"] == {"task": False}
    assert settings["permission"] == {"bash": "deny"}
    assert settings["agent"]["build"] == {"temperature": 0.5, "top_p": 0.9}
    assert "interleaved" not in settings["provider"]["gym"]["models"]["policy"]


def server(name: str = "weather", *, required: bool = True) -> MCPServer:
    return MCPServer(name, "http://host:2/mcp", {"X-Token": "the-tools-token"}, ("get_weather",), required)


def test_a_granted_server_is_a_remote_one_whose_token_is_in_the_environment_alone() -> None:
    found, settings = launch(servers=(server(),), timeout=60)
    assert settings["mcp"] == {
        "weather": {
            "type": "remote",
            "oauth": False,
            "timeout": 60_000,
            "url": "http://host:2/mcp",
            "headers": {"X-Token": "the-tools-token"},
        }
    }
    assert "the-tools-token" not in " ".join(found.argv)
    assert "the-tools-token" not in repr(server())


def test_it_does_not_go_on_without_a_required_server() -> None:
    found, settings = launch(servers=(server(), server("news", required=False)))
    assert settings["plugin"] == ["file:///tmp/s/home/config/opencode/required.js"]
    assert 'const required = ["weather"]' in found.env["GYM_OPENCODE_PLUGIN"]
    assert set(settings["mcp"]) == {"weather", "news"}
    for servers in ((), (server(required=False),)):
        assert "plugin" not in launch(servers=servers)[1]
