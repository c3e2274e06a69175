"""What it needs in a sandbox: what `opencode_agent` does."""

from responses_api_agents.opencode_agent.adapter import BUNDLE

__all__ = ["BUNDLE"]
