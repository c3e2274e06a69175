"""`--agent-type`: another harness for the environments of a configuration, where they allow it."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gym.cli.main import app
from gym.config import load
from gym.config.errors import ConfigErrors, UserError
from gym.config.plan import Plan
from gym.config.roots import INSTALL_ROOT

COUNTER = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
WEATHER = "resources_servers/example_mcp_weather/configs/example_mcp_weather_opencode.yaml"
HERMES = "benchmarks/swebench/verified/hermes.yaml"
RELAY = "benchmarks/swebench/verified/opencode_legacy_agent.yaml"
BOTH = "swebench_verified_hermes_resources_server.resources_servers.swebench.allowed_agents=[hermes_agent,opencode_agent]"


def plan_of(folder: Path, agent_type: str, *configs: str | Path, overrides: tuple[str, ...] = ()) -> Plan:
    return load(
        [INSTALL_ROOT / config for config in configs],
        overrides,
        model_type="scripted_model",
        agent_type=agent_type,
        roots=[folder, INSTALL_ROOT],
        env={},
        cwd=folder,
    ).plan


def agents(plan: Plan) -> dict[str, str]:
    return {name: instance.implementation for name, instance in plan.instances.items() if instance.kind == "responses_api_agents"}


def errors(folder: Path, agent_type: str, *configs: str | Path) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        plan_of(folder, agent_type, *configs)
    return [str(problem) for problem in caught.value.errors]


def test_the_harness_of_an_environment_is_swapped(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "noop_agent", COUNTER)
    assert agents(plan) == {"example_session_state_mgmt_noop_agent": "noop_agent"}
    route = plan.routes["example_session_state_mgmt"]
    assert (route.agent, route.model) == ("example_session_state_mgmt_noop_agent", "policy_model")


def test_a_recipe_that_allows_both(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, "opencode_agent/opencode_swe", HERMES, overrides=(BOTH, "opencode_agent.responses_api_agents.opencode_agent.timeout=600")
    )
    assert agents(plan) == {"swebench_verified_opencode_agent": "opencode_agent"}
    config: Any = plan.instances["swebench_verified_opencode_agent"].config
    assert ("conda" in config.prelude, config.timeout) == (True, 600)
    assert plan.routes["swebench:verified"].agent == "swebench_verified_opencode_agent"


def test_one_that_is_there_already_keeps_its_settings(tmp_path: Path) -> None:
    overrides = ("example_mcp_weather_opencode_agent.responses_api_agents.opencode_agent.timeout=77",)
    plan = plan_of(tmp_path, "opencode_agent", WEATHER, overrides=overrides)
    assert agents(plan) == {"example_mcp_weather_opencode_agent": "opencode_agent"}
    config: Any = plan.instances["example_mcp_weather_opencode_agent"].config
    assert config.timeout == 77


def test_the_model_server_and_the_data_sets_of_the_agent_are_kept(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(f"""
config_paths: [{COUNTER}]
other_model: {{responses_api_models: {{scripted_model: {{}}}}}}
example_session_state_mgmt_simple_agent:
  responses_api_agents:
    simple_agent:
      model_server: {{type: responses_api_models, name: other_model}}
      datasets: [{{name: mine, type: example, jsonl_fpath: resources_servers/example_session_state_mgmt/data/example.jsonl}}]
""")
    plan = plan_of(tmp_path, "noop_agent", overlay)
    (name,) = agents(plan)
    assert plan.instances[name].references["model_server"].name == "other_model"
    assert (name, "mine") in {(bound.instance, bound.dataset.name) for bound in plan.datasets}


def test_an_agent_of_several_environments_is_swapped_in_each(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(f"""
config_paths: [{COUNTER}]
second_environment: {{_copy: example_session_state_mgmt_environment_server}}
environment_server_routes: {{example_session_state_mgmt: second_environment}}
""")
    plan = plan_of(tmp_path, "noop_agent", overlay)
    assert set(agents(plan)) == {"example_session_state_mgmt_noop_agent"}
    assert {route.agent for route in plan.environments.values()} == {"example_session_state_mgmt_noop_agent"}


def test_a_harness_that_is_not_allowed_names_those_that_are(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, "opencode_agent", HERMES)
    assert said.startswith("--agent-type opencode_agent: error[pairing]: swebench_verified_hermes_environment_server.")
    assert "use one of: hermes_agent, or add 'opencode_agent' to allowed_agents" in said


def test_a_harness_that_cannot_use_the_tools(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, "opencode_agent", COUNTER)
    assert "error[tool-transport]" in said
    assert "opencode_agent uses mcp" in said


def test_behind_a_relay_nothing_is_swapped(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, "opencode_agent", RELAY)
    assert "hands whole rollouts to its agent 'swebench_verified_opencode_sandboxed_agent'" in said
    assert said.endswith("use a recipe with sessions (single_agent_turn)")


def test_without_an_environment_there_is_nothing_to_swap(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, "opencode_agent", "resources_servers/swebench/configs/swebench.yaml")
    assert "there is no environment server whose agent it could take the place of" in said


def test_one_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--agent-type opencod_agent: there is no .* did you mean 'opencode_agent'\?"):
        plan_of(tmp_path, "opencod_agent", COUNTER)
    with pytest.raises(UserError, match=r"there is no responses_api_agents/opencode_agent/configs/none\.yaml"):
        plan_of(tmp_path, "opencode_agent/none", COUNTER)


@pytest.mark.parametrize("command", [["env", "validate"], ["env", "resolve"], ["eval", "run", "--dry-run", "--output", "out.jsonl"]])
def test_the_commands_that_take_it(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*command, "--config", COUNTER, "--model-type", "scripted_model", "--agent-type"]
    said = CliRunner().invoke(app, [*arguments, "noop_agent"])
    assert said.exit_code == 0, said.output
    assert CliRunner().invoke(app, [*arguments, "../x"]).exit_code == 2
