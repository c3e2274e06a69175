"""Calls to the model and to the task's tools: what an HTTP reply means for the rollout."""

import json
from typing import Any

import httpx

from responses_api_agents.nooa_agent.runner.rollout import BUDGET_EXHAUSTED, InfrastructureFailure, PolicyBudgetExhausted, Stop

_PIECE = 500
_CONNECT_SECONDS = 30.0


def new_client(headers: dict[str, str], cookies: dict[str, str] | None = None) -> httpx.AsyncClient:
    """A client with cookies of its own. How long a reply may take is for the rollout's deadline to say."""
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    return httpx.AsyncClient(headers=headers, cookies=cookies, timeout=timeout, trust_env=False)


def unreachable(what: str, error: Exception) -> InfrastructureFailure:
    """A call that got no reply."""
    kind = "transport_unreachable" if isinstance(error, httpx.ConnectError) else "transport_peer_drop"
    return InfrastructureFailure(f"{what} gave no reply: {type(error).__name__}: {error}", kind=kind)


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The `error` object of a reply; one with its text, where it has none."""
    try:
        error = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = None
    return error if isinstance(error, dict) else {"message": reply.text[:_PIECE]}


def refusal(what: str, reply: httpx.Response) -> Stop:
    """What a reply with an error means, where it is none of the policy's doing."""
    error = error_of(reply)
    kind = error.get("type")
    if kind == BUDGET_EXHAUSTED:
        return PolicyBudgetExhausted("the model server's budget")
    terminal = error.get("terminal")
    if not isinstance(terminal, bool):
        terminal = reply.status_code < 500 and reply.status_code not in (408, 425, 429)
    if not isinstance(kind, str) or (kind == "protocol_violation" and not terminal):  # a word that servers use for want of a better
        kind = "agent_request_failed"
    message = f"{what} answered {reply.status_code}: {str(error.get('message'))[:_PIECE]}"
    return InfrastructureFailure(message, kind=kind, terminal=terminal)


def loaded(text: str) -> Any:
    """A reply as JSON where it is that, else as it came."""
    try:
        return json.loads(text)
    except ValueError:
        return text
