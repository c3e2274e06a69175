"""One activation of an agent of NOOA's: the same in the agent server and in a sandbox.

Invariant: it ends with one record of type `end`, which says how, unless it is cancelled or killed. What the policy did badly is
`incomplete` and gradable; what broke is `failed`.
"""

import asyncio
import importlib
import inspect
import os
import traceback
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import asks GitHub for prices

from nooa import Agent
from nooa.runtime.hooks import set_hooks

from responses_api_agents.nooa_agent.invocation import Invocation, InvocationAdapter, Invoked
from responses_api_agents.nooa_agent.runner.http import new_client
from responses_api_agents.nooa_agent.runner.policy_model import GymResponsesLLM
from responses_api_agents.nooa_agent.runner.resource_tools import ResourceTools
from responses_api_agents.nooa_agent.runner.rollout import (
    BUDGET_EXHAUSTED,
    InfrastructureFailure,
    PolicyBudgetExhausted,
    Record,
    Rollout,
    Stop,
)
from responses_api_agents.nooa_agent.runner.trace_hooks import GymTraceHooks


@dataclass(frozen=True)
class Job:
    """What is to be run, as JSON: nothing of it is secret."""

    agent_class: str
    invocation_adapter: str
    params: dict[str, Any]
    task: str
    instructions: str
    workdir: str
    context_window: int
    max_policy_calls: int | None = None
    init_kwargs: dict[str, Any] = field(default_factory=dict[str, Any])


def agent_class_of(name: str) -> type:
    """The class `module:Name`. Raises ValueError."""
    found = _named(name)
    if not inspect.isclass(found) or not issubclass(found, Agent):
        raise ValueError(f"agent_class {name} is no class of NOOA agents")
    return found


def adapter_of(name: str) -> InvocationAdapter:
    """The function `module:name`. Raises ValueError."""
    found = _named(name)
    if not inspect.iscoroutinefunction(found):
        raise ValueError(f"invocation_adapter {name} is no async function")
    return found


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}") from error


async def activate(job: Job, access: dict[str, Any], record: Record) -> None:
    """Run the agent. `access` has the addresses and secrets: `model`, and `resources` where there are tools."""
    rollout = Rollout(record, job.max_policy_calls)
    model, tools = access["model"], ResourceTools(access.get("resources"), rollout)
    try:
        async with new_client({"authorization": f"Bearer {model['token']}"}) as client:
            llm = GymResponsesLLM(client, f"{model['base_url']}/responses", rollout, job.params, job.context_window)
            end = await _run(job, llm, tools, rollout)
    finally:
        await tools.aclose()
    rollout.record("end", **end)


async def _run(job: Job, llm: GymResponsesLLM, tools: ResourceTools, rollout: Rollout) -> dict[str, Any]:
    set_hooks(GymTraceHooks(rollout))
    invoked: Invoked | None = None
    try:
        made = tools.bind(agent_class_of(job.agent_class), job.params.get("tools") or [])
        agent = made(llm=llm, **job.init_kwargs)
        invocation = Invocation(job.task, job.instructions, job.workdir, job.params)
        invoked = await adapter_of(job.invocation_adapter)(agent, invocation)
    except Stop as stop:
        rollout.stop(stop)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        where = traceback.format_exception(error)[-3:]
        rollout.stop(InfrastructureFailure(f"{type(error).__name__}: {error} ({' '.join(''.join(where).split())[-300:]})"))
    match rollout.ended_by:
        case PolicyBudgetExhausted() as budget:
            return {"outcome": "incomplete", "reason": BUDGET_EXHAUSTED, "detail": str(budget)}
        case InfrastructureFailure() as failure:
            return {"outcome": "failed", "reason": str(failure), "kind": failure.kind, "terminal": failure.terminal}
        case Stop():
            return {"outcome": "incomplete", "reason": "agent_closed"}
        case None:
            assert invoked is not None
    if invoked.gave_up is not None:
        return {"outcome": "incomplete", "reason": "agent_gave_up", "detail": invoked.gave_up, "text": invoked.text, "value": invoked.value}
    return {"outcome": "completed", "reason": "", "text": invoked.text, "value": invoked.value}
