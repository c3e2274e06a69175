"""From a request and a session's grants to what a worker is handed: the job, and apart from it the addresses and secrets."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from gym.harness.prompt import told_apart
from gym.protocol.access import DirectHTTPToolAccess, ToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.nooa_agent.config import Config

TITLE = "NOOA"


def job_of(config: Config, params: ResponseCreateParams, workdir: str) -> dict[str, Any]:
    """The fields of `runner.activation.Job`. Raises ContractError (422)."""
    # Which tools can be methods is for the worker to say: it has the class.
    instructions, task = told_apart(params, TITLE, {str(tool.get("name") or tool.get("type")) for tool in params.tools or []})
    return {
        "agent_class": config.nooa.agent_class,
        "invocation_adapter": config.nooa.invocation_adapter,
        "init_kwargs": config.nooa.init_kwargs,
        "params": params.model_dump(mode="json", exclude_unset=True),
        "task": task,
        "instructions": instructions,
        "workdir": workdir,
        "context_window": config.context_window,
        "max_policy_calls": config.max_policy_calls,
    }


def grant_of(accesses: tuple[ToolAccess, ...]) -> DirectHTTPToolAccess | None:
    """The one grant that becomes methods of the agent. Raises ContractError (422) for more."""
    grants = [access for access in accesses if isinstance(access, DirectHTTPToolAccess)]
    if len(grants) > 1:
        raise ContractError(422, f"{TITLE} uses one direct_http grant, but was given {', '.join(grant.name for grant in grants)}")
    return grants[0] if grants else None


async def access_of(
    model: dict[str, str],
    grant: DirectHTTPToolAccess | None,
    headers: dict[str, str],
    url_of: Callable[[str], Awaitable[str]],
) -> dict[str, Any]:
    """What `runner.activation.activate` takes as `access`; `url_of` says where the worker reaches an address of ours."""
    if grant is None:
        return {"model": model}
    tools = {"base_url": await url_of(grant.base_url), "headers": {**grant.headers, **headers}, "cookies": dict(grant.cookies)}
    return {"model": model, "resources": tools}


def as_text(value: dict[str, Any]) -> str:
    """JSON, for standard input or a variable."""
    return json.dumps(value, ensure_ascii=True)
