"""Route names, headers and prefixes, in one place; see docs/contract.md."""

SEED_SESSION = "/seed_session"
VERIFY = "/verify"
CLOSE_SESSION = "/close_session"
AGGREGATE_METRICS = "/aggregate_metrics"
REVERIFY_MODE = "/reverify_mode"
MCP = "/mcp"

AGENT_SESSIONS = "/v1/agent_sessions"
CLOSE_AGENT_SESSION = "/v1/agent_sessions/close"
RESPONSES = "/v1/responses"
CHAT_COMPLETIONS = "/v1/chat/completions"
MESSAGES = "/v1/messages"
MODELS = "/v1/models"

CAPTURE = "/v1/capture"
OPEN_CAPTURE = "/v1/capture/open"
CLOSE_CAPTURE = "/v1/capture/close"

RUN = "/run"

HEALTH = "/healthz"
READY = "/readyz"
SERVER_INSTANCES = "/server_instances"
GLOBAL_CONFIG = "/global_config_dict_yaml"
STATUS = "/status"
DRAIN = "/drain"

ROLLOUT_PREFIX = "/ng-rollout"
TOKEN_CAPTURE = "training-token-capture"

EPISODE_HEADER = "x-gym-episode"
"""Carries an episode's capture key on every call that is made for it, for the logs alone."""
MCP_SESSION_HEADER = "X-NeMo-Gym-Session-Token"


def rollout_prefix(capture_key: str, *, token_capture: bool = False) -> str:
    """The path prefix under which an episode's agent and model calls are made."""
    prefix = f"{ROLLOUT_PREFIX}/{capture_key}"
    return f"{prefix}/{TOKEN_CAPTURE}" if token_capture else prefix
