"""The real OpenCode calls a task's tools over MCP, from a container whose network leads to our servers alone."""

import json
from typing import Any

import pytest

from tests.integration.conftest import GymRuns, Started

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CONFIG = """
config_paths:
- resources_servers/example_mcp_weather/configs/example_mcp_weather_opencode.yaml
- responses_api_models/scripted_model/configs/scripted_model.yaml
sandbox:
  docker: {{create: {{pull: never}}}}
weather:
  resources_servers:
    {server}
      expose_tools_over_mcp: true
      sandbox_provider: sandbox
      sandbox_config: {{image: "gym-test/calc:latest", workdir: /testbed, ttl_s: 600, metadata: {{test: "{tag}"}}}}
policy_model:
  responses_api_models:
    scripted_model: {model}
example_mcp_weather_environment_server:
  environment_servers:
    single_agent_turn: {{cleanup_timeout_seconds: 60, default_episode_timeout_seconds: 300}}
"""

PRY = """
import json, os, urllib.error, urllib.parse, urllib.request
server = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])["mcp"]["weather"]
root = "http://" + urllib.parse.urlsplit(server["url"]).netloc
said = {}
for path in ("/run", "/seed_session", "/verify", "/close_session", "/get_weather", "/drain", "/status"):
    request = urllib.request.Request(root + path, b"{}", server["headers"], method="POST")
    try:
        said[path] = urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        said[path] = error.code
request = urllib.request.Request(server["url"], b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', {})
try:
    said["/mcp"] = urllib.request.urlopen(request, timeout=10).status
except urllib.error.HTTPError as error:
    said["/mcp"] = error.code
print(json.dumps(said))
"""


def ask(city: Any) -> dict[str, Any]:
    return {"call": "weather_get_weather", "arguments": {"city": city}}


def told(city: str) -> dict[str, Any]:
    return {"say": f"The weather in {city} is sunny and 72 F."}


def begin(runs: GymRuns, scripts: dict[str, list[dict[str, Any]]], server: str = "example_mcp_weather:") -> Started:
    """An episode for each city."""
    rules = [{"when": f"weather for {city}", "steps": steps} for city, steps in scripts.items()]
    runs.config.write_text(CONFIG.format(model=json.dumps({"rules": rules}), tag=runs.tag, server=server))
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
    params = {city: {"input": f"Look up the weather for {city}.", "tools": tools} for city in scripts}
    rows = [{"task_id": city, "responses_create_params": params[city], "verifier_metadata": {"expected_city": city}} for city in scripts]
    arguments = ["--config", runs.config, "--input", runs.rows(*rows), "--output", runs.folder / "out.jsonl", "--attempts", "1"]
    return runs.begin("eval", "run", *arguments, "--env", "example_mcp_weather_environment_server")


def test_opencode_calls_a_tool_of_the_task(harness: Any, runs: GymRuns) -> None:
    scripts = {
        "Oslo": [
            ask("Oslo"),
            {"call": "bash", "arguments": {"command": f"python3 - <<'X'{PRY}X", "description": "pry"}},
            told("Oslo"),
        ],
        "Lima": [told("Lima")],  # says it without having asked
        "Quito": [{"call": "weather_get_weather", "arguments": {"town": "Quito"}}, ask("Quito"), told("Quito")],
    }
    started = begin(runs, scripts)
    assert started.ended(200) == 0, started.errors
    found = {row["task_id"]: row for row in runs.lines("out.jsonl")}
    assert {city: row["reward"] for city, row in found.items()} == {"Oslo": 1.0, "Lima": 0.0, "Quito": 1.0}
    assert found["Oslo"]["cities_asked"] == ["Oslo"]
    assert (found["Lima"]["tool_called"], found["Lima"]["weather_told"]) == (False, True)

    call, output, _, pried, message = found["Oslo"]["response"]["output"]
    assert (call["name"], json.loads(call["arguments"])) == ("mcp__weather__get_weather", {"city": "Oslo"})
    assert output["output"] == '{"city":"Oslo","weather":"The weather in Oslo is sunny and 72 F."}'
    assert message["content"][0]["text"] == "The weather in Oslo is sunny and 72 F."
    mistaken = found["Quito"]["response"]["output"][1]["output"]
    assert "city: field required" in mistaken  # told to the model, which then does it right

    # With the token of its tools, code in the sandbox opens its tools over MCP and nothing else.
    said = json.loads(pried["output"])
    assert len(said) == 8
    assert set(said.values()) <= {401, 404}, said


def test_without_its_tools_nothing_is_measured(harness: Any, runs: GymRuns) -> None:
    """OpenCode would go on, and the policy would be blamed."""
    started = begin(runs, {"Oslo": [told("Oslo")]}, server="_delete_key: example_mcp_weather\n    weather_unheard:")
    assert started.ended(200) == 76, started.errors
    (failure,) = runs.lines("out_failures.jsonl")
    assert (failure["_ng_failure_kind"], failure["_ng_failure_terminal"]) == ("agent_run_error", False)
    assert "OpenCode ended with UnknownError: is not connected to weather: " in failure["_ng_failure_message"]
