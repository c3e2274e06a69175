"""What Hermes needs, and how it is started: its `AIAgent` by a driver of ours, since its command line ends with 0 on model errors.

Names and variables are those of the pinned version. HOME is left as the image has it, since the project's own caches may lie
there; Hermes' files go to a home of the session's own. Hermes keeps OPENAI_API_KEY from the commands that it runs.
"""

import json
from pathlib import Path
from typing import Any

from gym.harness.adapter import Ending, Launch, MCPServer, ModelAccess, Place, Transcript
from gym.harness.bundle import Bundle
from gym.harness.python_tree import PythonTree
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.hermes_agent.config import Config
from responses_api_agents.hermes_agent.transcript import read_transcript

_HERE = Path(__file__).parent
BUNDLE = Bundle("Hermes", (PythonTree(_HERE / "bundle.txt", (_HERE / "driver.py",)),))
_SAMPLING = ("temperature", "top_p")


class Hermes:
    """One configured Hermes."""

    title = "Hermes"
    bundle = BUNDLE
    kept = ()

    def __init__(self, config: Config) -> None:
        self._config = config

    def launch(self, params: ResponseCreateParams, model: ModelAccess, place: Place, servers: tuple[MCPServer, ...] = ()) -> Launch:
        """The driver, with its settings as its argument."""
        seconds = str(self._config.timeout)
        env = {
            "HERMES_HOME": place.home,
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": model.token,
            "HERMES_YOLO_MODE": "1",  # nobody is there to be asked
            "TERMINAL_ENV": "local",
            "TERMINAL_CWD": place.workdir,
            "TERMINAL_TIMEOUT": str(self._config.terminal_timeout),
            # How long an answer may take is the rollout's time-out to say.
            "HERMES_API_TIMEOUT": seconds,
            "HERMES_STREAM_STALE_TIMEOUT": seconds,
            "HERMES_STREAM_READ_TIMEOUT": seconds,
        }
        driver = f"{place.binaries}/driver.py"
        return Launch((f"{place.binaries}/bin/python3", "-I", driver, json.dumps(self._settings(params))), env, place.binaries)

    def read(self, evidence: Path, ending: Ending | None) -> Transcript:
        """The messages and the result that the driver said."""
        return read_transcript(evidence, ending)

    def tool_name(self, server: str, tool: str) -> str:
        """As Hermes names tools of MCP servers; it is given none."""
        return f"mcp_{server}_{tool}"

    def _settings(self, params: ResponseCreateParams) -> dict[str, Any]:
        config = self._config
        given = params.model_extra or {}
        sampling = {name: given[name] for name in _SAMPLING if given.get(name) is not None}
        return {
            "agent": {
                "model": "policy",
                "max_iterations": config.max_turns,
                "max_tokens": config.max_output_tokens,
                "enabled_toolsets": config.toolsets,
                "request_overrides": {**config.request_overrides, **sampling},
            },
            "config": {
                "model": {"context_length": config.context_window, "max_tokens": config.max_output_tokens},
                "compression": {"enabled": config.compaction, "threshold": config.compaction_threshold, "in_place": True},
                "agent": {"verify_on_stop": False},  # as new installations have it
            },
        }
