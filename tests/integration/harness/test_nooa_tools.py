"""An agent of NOOA's in a container calls the task's tools by methods of its own, over a network that leads to our servers alone."""

import json
from typing import Any

import pytest

from tests.integration.conftest import GymRuns
from tests.integration.harness.test_nooa_solves import python
from tests.integration.swe.gym_runs import skip_without_environment

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.parametrize("harness", ["nooa_agent"], indirect=True)]

CONFIG = """
config_paths:
- resources_servers/example_mcp_weather/configs/example_mcp_weather_opencode.yaml
- responses_api_agents/nooa_agent/configs/nooa_agent.yaml
- responses_api_models/scripted_model/configs/scripted_model.yaml
sandbox:
  docker: {{create: {{pull: never, network: internal}}}}
weather:
  resources_servers:
    example_mcp_weather:
      allowed_agents: [nooa_agent, opencode_agent]
      sandbox_provider: sandbox
      sandbox_config: {{image: "gym-test/calc:latest", workdir: /testbed, ttl_s: 900, metadata: {{test: "{tag}"}}}}
policy_model:
  responses_api_models:
    scripted_model: {model}
example_mcp_weather_nooa_agent:
  _inherit_from: nooa_agent
  responses_api_agents:
    nooa_agent:
      timeout: 200
      nooa:
        agent_class: responses_api_agents.nooa_agent.resource_agent:ResourceAgent
        invocation_adapter: responses_api_agents.nooa_agent.resource_agent:invoke_resource_agent
example_mcp_weather_environment_server:
  environment_servers:
    single_agent_turn:
      agent_server: {{type: responses_api_agents, name: example_mcp_weather_nooa_agent}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 60
      default_episode_timeout_seconds: 300
"""


def test_a_tool_is_a_method_in_the_sandbox(harness: Any, runs: GymRuns) -> None:
    told = "The weather in Oslo is sunny and 72 F."
    code = "try:\n    await self.get_weather(city=[])\nexcept Exception as error:\n    print(type(error).__name__)\n"
    steps = [
        {"say": "never asked for"},
        python(f"{code}print(await self.get_weather(city='Oslo'))"),
        {"call": "return_result", "arguments": {"result": told}},
    ]
    runs.config.write_text(CONFIG.format(model=json.dumps({"rules": [{"when": "weather for Oslo", "steps": steps}]}), tag=runs.tag))
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    params = {"input": "Look up the weather for Oslo.", "tools": [{"type": "function", "name": "get_weather", "parameters": parameters}]}
    row = {"task_id": "Oslo", "responses_create_params": params, "verifier_metadata": {"expected_city": "Oslo"}}
    given = ["--config", runs.config, "--input", runs.rows(row), "--output", runs.folder / "out.jsonl", "--attempts", "1"]
    started = runs.begin("eval", "run", *given, "--env", "example_mcp_weather_environment_server")
    code = started.ended(200)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    (done,) = runs.lines("out.jsonl")
    assert (done["reward"], done["cities_asked"]) == (1.0, ["Oslo"])
    observed = done["ng_agent_observations"]
    assert observed["execution_mode"] == "sandboxed"
    assert [call["status"] for call in observed["resource_calls"]] == [422, 200]
    assert observed["python_executions"][-1]["stdout"].startswith("ResourceToolError\n")
