"""What OpenCode needs, how it is started without a terminal or the internet, and where its transcript is read.

The flags and variables are those of the pinned version. HOME is left as the image has it, since the project's own caches may lie
there; OpenCode's files go to a home of the session's own.
"""

from pathlib import Path
from typing import Any

import orjson

from gym.harness.adapter import Ending, Launch, ModelAccess, Place, Transcript
from gym.harness.bundle import Bundle
from gym.harness.npm_piece import Piece
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.opencode_agent.config import Config
from responses_api_agents.opencode_agent.store import FILES
from responses_api_agents.opencode_agent.transcript import read_transcript

BUNDLE = Bundle(
    "OpenCode",
    (
        Piece(
            "opencode-linux-x64",
            "1.18.33",
            "149a676b59224b196626abda2fdbd34c8329ac326b57c4891ba3de446f3ca3c1",
            "package/bin/opencode",
            "opencode",
        ),
        Piece(  # static; without one on PATH OpenCode would download it for its grep and glob
            "@vscode/ripgrep-linux-x64",
            "1.18.0",
            "8cc06e25e29f9c258ee9a09eecd7707c1ea2e99d9e76151e53dbe39f8d6b4a09",
            "package/bin/rg",
            "rg",
        ),
    ),
)

_PACKAGES = {
    "chat_completions": "@ai-sdk/openai-compatible",
    "responses": "@ai-sdk/openai",
    "messages": "@ai-sdk/anthropic",
}
"""OpenCode brings these along; any other it would download."""
_MODEL = "gym/policy"
_OFF = (
    *("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "PROJECT_CONFIG"),
    *("CLAUDE_CODE", "EXTERNAL_SKILLS", "TERMINAL_TITLE"),
)
"""`OPENCODE_DISABLE_<name>`: what would call the internet, or take instructions from files of the task or the image."""


class OpenCode:
    """One configured OpenCode."""

    title = "OpenCode"
    bundle = BUNDLE
    kept = FILES

    def __init__(self, config: Config) -> None:
        self._config = config

    def launch(self, params: ResponseCreateParams, model: ModelAccess, place: Place) -> Launch:
        """`opencode run`: one prompt, events on stdout. A title of our own saves the model call for one."""
        argv = [f"{place.binaries}/opencode", "run", "--format", "json", "--title", "task", "--model", _MODEL, "--dir", place.workdir]
        if self._config.thinking:
            argv.append("--thinking")
        xdg = {f"XDG_{name}_HOME": f"{place.home}/{name.lower()}" for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        env = {
            **xdg,
            **{f"OPENCODE_DISABLE_{name}": "1" for name in _OFF},
            "OPENCODE_TEST_HOME": place.home,
            "OPENCODE_CONFIG_CONTENT": orjson.dumps(self._settings(params, model)).decode(),
            "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": str(self._config.max_output_tokens),
        }
        return Launch(tuple(argv), env, place.binaries)

    def read(self, evidence: Path, ending: Ending | None) -> Transcript:
        """The events that it printed, and its database."""
        return read_transcript(evidence, ending)

    def _settings(self, params: ResponseCreateParams, model: ModelAccess) -> dict[str, Any]:
        config = self._config
        sampling = {name: value for name in ("temperature", "top_p") if (value := (params.model_extra or {}).get(name)) is not None}
        limit = {"context": config.context_window, "output": config.max_output_tokens}
        served: dict[str, Any] = {"name": "policy", "tool_call": True, "temperature": True, "reasoning": config.thinking, "limit": limit}
        if config.thinking and config.model_api == "chat_completions":
            served["interleaved"] = {"field": "reasoning_content"}
        options: dict[str, Any] = {"baseURL": model.base_url, "apiKey": model.token, "timeout": False}
        if config.model_api == "messages":  # its client would send the token under a header of its own alone
            options["headers"] = {"authorization": f"Bearer {model.token}"}
        return {
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "lsp": False,
            "formatter": False,
            "enabled_providers": ["gym"],
            "model": _MODEL,
            "small_model": _MODEL,
            "permission": config.permission,
            "tools": {} if config.subagents else {"task": False},
            "agent": dict.fromkeys(("build", "general", "explore"), sampling) if sampling else {},
            "provider": {
                "gym": {"npm": _PACKAGES[config.model_api], "name": "gym", "options": options, "models": {"policy": served}},
            },
        }
