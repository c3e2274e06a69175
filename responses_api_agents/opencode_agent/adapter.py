"""What OpenCode needs, how it is started without a terminal or the internet, and where its transcript is read.

The flags and variables are those of the pinned version. HOME is left as the image has it, since the project's own caches may lie
there; OpenCode's files go to a home of the session's own.
"""

import re
from pathlib import Path
from typing import Any

import orjson

from gym.harness.adapter import Ending, Launch, MCPServer, ModelAccess, Place, Transcript
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
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_OFF = (
    *("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "PROJECT_CONFIG"),
    *("CLAUDE_CODE", "EXTERNAL_SKILLS", "TERMINAL_TITLE"),
)
"""`OPENCODE_DISABLE_<name>`: what would call the internet, or take instructions from files of the task or the image."""


_REQUIRED = """
const required = %s
export const RequiredServers = async ({ client }) => ({
  "chat.params": async () => {
    const { data } = await client.mcp.status()
    for (const name of required) {
      const found = data?.[name]
      if (found?.status !== "connected") throw new Error(`is not connected to ${name}: ${found?.error ?? found?.status}`)
    }
  },
})
"""
"""A plugin that ends the run in place of a model call without the required tools; OpenCode by itself goes on without them."""
_START = 'mkdir -p "$0" && echo offline=true > "$0/.npmrc" && printf %s "$GYM_OPENCODE_PLUGIN" > "$0/required.js" && exec "$@"'
"""`$0` is its folder of settings. Without the first file it would download a package there, and with a plugin wait for that."""


class OpenCode:
    """One configured OpenCode."""

    title = "OpenCode"
    bundle = BUNDLE
    kept = FILES

    def __init__(self, config: Config) -> None:
        self._config = config

    def launch(self, params: ResponseCreateParams, model: ModelAccess, place: Place, servers: tuple[MCPServer, ...]) -> Launch:
        """`opencode run`: one prompt, events on stdout. A title of our own saves the model call for one."""
        argv = [f"{place.binaries}/opencode", "run", "--format", "json", "--title", "task", "--model", _MODEL, "--dir", place.workdir]
        if self._config.thinking:
            argv.append("--thinking")
        xdg = {f"XDG_{name}_HOME": f"{place.home}/{name.lower()}" for name in ("DATA", "CONFIG", "CACHE", "STATE")}
        env = {
            **xdg,
            **{f"OPENCODE_DISABLE_{name}": "1" for name in _OFF},
            "OPENCODE_TEST_HOME": place.home,
            "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": str(self._config.max_output_tokens),
        }
        settings = self._settings(params, model, servers)
        required = [server.name for server in servers if server.required]
        folder = f"{xdg['XDG_CONFIG_HOME']}/opencode"
        if required:
            settings["plugin"] = [f"file://{folder}/required.js"]
            env["GYM_OPENCODE_PLUGIN"] = _REQUIRED % orjson.dumps(required).decode()
        env["OPENCODE_CONFIG_CONTENT"] = orjson.dumps(settings).decode()
        return Launch(("sh", "-c", _START, folder, *argv), env, place.binaries)

    def read(self, evidence: Path, ending: Ending | None) -> Transcript:
        """The events that it printed, and its database."""
        return read_transcript(evidence, ending)

    def tool_name(self, server: str, tool: str) -> str:
        """Both names, in the signs that all models take."""
        return _NO_NAME.sub("_", f"{server}_{tool}")

    def _mcp(self, servers: tuple[MCPServer, ...]) -> dict[str, Any]:
        """A tool may take as long as the harness itself; a token that is refused is no occasion to look for a way to log in."""
        rest = {"type": "remote", "oauth": False, "timeout": round(self._config.timeout * 1000)}
        return {server.name: {**rest, "url": server.url, "headers": dict(server.headers)} for server in servers}

    def _settings(self, params: ResponseCreateParams, model: ModelAccess, servers: tuple[MCPServer, ...]) -> dict[str, Any]:
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
            "mcp": self._mcp(servers),
            "tools": {} if config.subagents else {"task": False},
            "agent": dict.fromkeys(("build", "general", "explore"), sampling) if sampling else {},
            "provider": {
                "gym": {"npm": _PACKAGES[config.model_api], "name": "gym", "options": options, "models": {"policy": served}},
            },
        }
