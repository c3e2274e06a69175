"""What Hermes is started with."""

import json
from typing import Any

from gym.harness.adapter import Launch, ModelAccess, Place
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.hermes_agent.adapter import Hermes
from responses_api_agents.hermes_agent.config import Config

PLACE = Place("/tmp/s", "/opt/b", "/testbed")
MODEL = ModelAccess("http://host:1/ng-rollout/r/v1", "the-token")


def launch(params: dict[str, Any] | None = None, **config: Any) -> tuple[Launch, dict[str, Any]]:
    made = Config.model_validate({"model_server": {"type": "responses_api_models", "name": "policy_model"}, **config})
    found = Hermes(made).launch(ResponseCreateParams.model_validate({"input": "x", **(params or {})}), MODEL, PLACE)
    return found, json.loads(found.argv[-1])


def test_the_token_is_in_the_environment_alone() -> None:
    found, _ = launch()
    assert "the-token" not in " ".join(found.argv)
    assert (found.env["OPENAI_API_KEY"], found.env["OPENAI_BASE_URL"]) == ("the-token", "http://host:1/ng-rollout/r/v1")


def test_it_runs_by_a_python_of_its_own_and_keeps_its_files_in_a_home_of_its_own() -> None:
    found, _ = launch()
    assert found.argv[:3] == ("/opt/b/bin/python3", "-I", "/opt/b/driver.py")
    assert found.env["HERMES_HOME"] == "/tmp/s/home"
    assert not {"HOME", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH"} & found.env.keys(), "what it starts has the project's own"


def test_settings() -> None:
    found, settings = launch(
        {"temperature": 0.5, "top_p": 0.9},
        timeout=100,
        toolsets=["terminal"],
        max_turns=7,
        compaction=False,
        request_overrides={"extra_body": {"chat_template_kwargs": {"x": 1}}, "temperature": 1.0},
    )
    assert settings["agent"] == {
        "model": "policy",
        "max_iterations": 7,
        "max_tokens": 32_768,
        "enabled_toolsets": ["terminal"],
        "request_overrides": {"extra_body": {"chat_template_kwargs": {"x": 1}}, "temperature": 0.5, "top_p": 0.9},
    }
    assert settings["config"]["compression"]["enabled"] is False
    assert {found.env[name] for name in found.env if name.startswith("HERMES_") and name.endswith("TIMEOUT")} == {"100.0"}
