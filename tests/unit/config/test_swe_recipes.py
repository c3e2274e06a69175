"""The OpenCode recipes of the SWE data sets: as sessions, and deprecated through the relay; each validates and says what it must."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gym.cli.main import app
from gym.config import load
from gym.config.plan import Plan
from gym.config.roots import INSTALL_ROOT

BENCHMARKS = {f"swebench_{name}": f"benchmarks/swebench/{name}/opencode" for name in ("verified", "multilingual", "pro")}
TRAINING = {name: f"resources_servers/{name}/configs/{name}_opencode" for name in ("swe_gym", "r2e_gym", "scale_swe")}
SESSIONS = {prefix: f"{stem}.yaml" for prefix, stem in (BENCHMARKS | TRAINING).items()}
RELAYS = {prefix: f"{stem}_legacy_agent.yaml" for prefix, stem in (BENCHMARKS | TRAINING).items()}


def taskset(prefix: str) -> str:
    return prefix.replace("swebench_", "swebench:")


def plan_of(path: str, tmp_path: Path) -> Plan:
    return load([INSTALL_ROOT / path], [], model_type="scripted_model", roots=[INSTALL_ROOT], env={}, cwd=tmp_path).plan


def check_dataset(plan: Plan, prefix: str, declared_by: str) -> None:
    (bound,) = plan.datasets
    assert (bound.instance, bound.dataset.taskset, bound.dataset.name) == (declared_by, taskset(prefix), prefix)
    assert (bound.dataset.type, bound.dataset.num_repeats) == (("benchmark", 3) if prefix in BENCHMARKS else ("train", 1))
    assert bound.dataset.prepare_script is not None
    assert plan.sandbox_providers == {"sandbox": {"docker": {"create": {"network": "internal"}}}}


@pytest.mark.parametrize("path", [*SESSIONS.values(), *RELAYS.values()])
def test_it_validates(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(INSTALL_ROOT)
    said = CliRunner().invoke(app, ["env", "validate", "--config", path, "--model-type", "scripted_model"])
    assert said.exit_code == 0, said.output
    assert "Config is valid" in said.output


@pytest.mark.parametrize("prefix", SESSIONS)
def test_a_session_recipe(prefix: str, tmp_path: Path) -> None:
    plan = plan_of(SESSIONS[prefix], tmp_path)
    resources, agent, environment = (f"{prefix}_opencode_{kind}" for kind in ("resources_server", "agent", "environment_server"))
    assert set(plan.instances) == {resources, agent, environment, "policy_model"}
    assert plan.routes[taskset(prefix)].environment == environment
    check_dataset(plan, prefix, resources)
    server, harness, turn = (plan.instances[name] for name in (resources, agent, environment))
    settings: Any = server.config
    assert (settings.allowed_agents, settings.sandbox_config.ttl_s) == (["opencode_agent"], 25_200)
    assert (harness.implementation, turn.implementation) == ("opencode_agent", "single_agent_turn")
    settings = harness.config
    assert (settings.resources_server, settings.thinking, settings.subagents, settings.timeout) == (None, True, True, 10_800)
    assert settings.token_id_capture is (prefix in TRAINING)
    settings = turn.config
    assert (settings.resources_tool_transports, settings.default_episode_timeout_seconds) == ([], 21_600)


@pytest.mark.parametrize("prefix", RELAYS)
def test_a_relay_recipe(prefix: str, tmp_path: Path) -> None:
    first, second = (INSTALL_ROOT / RELAYS[prefix]).read_text().splitlines()[:2]
    assert first.startswith("# Deprecated: ")
    assert SESSIONS[prefix] in second
    plan = plan_of(RELAYS[prefix], tmp_path)
    resources, agent = f"{prefix}_opencode_resources_server", f"{prefix}_opencode_sandboxed_agent"
    environment = f"{prefix}_environment_server"
    assert set(plan.instances) == {resources, agent, environment, "policy_model"}
    route = plan.routes[taskset(prefix)]
    assert (route.environment, route.resources, route.agent, route.model) == (environment, resources, agent, "policy_model")
    check_dataset(plan, prefix, agent)
    assert plan.instances[environment].implementation == "legacy_agent"
    settings: Any = plan.instances[resources].config
    assert (settings.allowed_agents, settings.sandbox_config.ttl_s) == (["opencode_sandboxed_agent"], 25_200)
    settings = plan.instances[agent].config
    assert (settings.thinking, settings.subagents, settings.token_id_capture, settings.context_window) == (False, False, True, 262_144)
    outer: Any = plan.instances[environment].config
    inner = settings.default_episode_timeout_seconds + 3 * settings.cleanup_timeout_seconds
    assert inner < outer.default_episode_timeout_seconds, "the agent must get to say how its episode ended"


def test_all_session_recipes_can_run_together(tmp_path: Path) -> None:
    overlay = tmp_path / "all.yaml"
    overlay.write_text("config_paths:\n" + "".join(f"- {path}\n" for path in SESSIONS.values()))
    plan = load([overlay], [], model_type="scripted_model", roots=[INSTALL_ROOT], env={}, cwd=tmp_path).plan
    assert {name: route.environment for name, route in plan.routes.items()} == {
        taskset(prefix): f"{prefix}_opencode_environment_server" for prefix in SESSIONS
    }
