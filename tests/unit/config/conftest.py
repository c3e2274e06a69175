"""A project folder with tiny implementations, and short ways to load configs from it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from gym.cli import main as cli
from gym.config import Examined, examine

CONFIGS = {
    "resources_servers/box": """
        from gym.config.schema import ResourcesServerConfig, Section

        class Limits(Section):
            cpu: int = 1
            memory_mib: int = 512

        class Config(ResourcesServerConfig):
            timeout_seconds: float = 60
            limits: Limits = Limits()
            sandbox_provider: str | None = None
            sandbox_config: dict[str, object] = {}
            api_key: str | None = None
        """,
    "responses_api_agents/actor": """
        from typing import ClassVar

        from gym.config.schema import AgentConfig, ModelRef

        class Config(AgentConfig):
            tool_transports: ClassVar[frozenset[str] | None] = frozenset({"mcp"})
            judges: list[ModelRef] = []
            max_steps: int = 10
        """,
    "responses_api_models/echo": """
        from gym.config.schema import ModelConfig

        class Config(ModelConfig):
            base_url: str | None = None
            api_key: str | None = None
        """,
    "environment_servers/turn": """
        from gym.config.schema import AgentRef, EnvironmentServerConfig, ResourcesServerRef

        class Config(EnvironmentServerConfig):
            resources_server: ResourcesServerRef
            agent_server: AgentRef
            resources_tool_transports: list[str] = []
        """,
}

BASE = """
box:
  resources_servers:
    box:
      timeout_seconds: 30
actor:
  responses_api_agents:
    actor:
      model_server: {type: responses_api_models, name: policy_model}
policy_model:
  responses_api_models:
    echo:
      base_url: http://127.0.0.1:1/v1
turn:
  environment_servers:
    turn:
      resources_server: {type: resources_servers, name: box}
      agent_server: {type: responses_api_agents, name: actor}
"""


class Project:
    """A working directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder, code in CONFIGS.items():
            self.write(f"{folder}/config.py", code)
            self.write(f"{folder}/app.py", "")
        self.write("responses_api_agents/plain/app.py", "")
        self.write("base.yaml", BASE)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
        return file

    def examine(
        self, *configs: str, overrides: tuple[str, ...] = (), env: Mapping[str, str] | None = None, model_type: str | None = None
    ) -> Examined:
        return examine(configs, overrides, roots=[self.root], env=env or {}, cwd=self.root, model_type=model_type)

    def check(self, text: str, *overrides: str, env: Mapping[str, str] | None = None) -> Examined:
        """Examines one config given as text, laid over base.yaml."""
        self.write("over.yaml", "config_paths: [base.yaml]\n" + dedent(text))
        return self.examine("over.yaml", overrides=overrides, env=env)

    def compose(self, text: str, *overrides: str, env: Mapping[str, str] | None = None) -> Examined:
        """Examines one config given as text, by itself."""
        self.write("alone.yaml", text)
        return self.examine("alone.yaml", overrides=overrides, env=env)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def gym(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in the project; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(project.root)
    monkeypatch.delenv("GYM_EXTRA_ROOTS", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
