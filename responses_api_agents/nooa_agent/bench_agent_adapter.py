"""How `nooa_bench.bench_agent:BenchAgent` is invoked: it works in the task's work tree and returns what it did, with its evidence."""

import json
from typing import Any

from responses_api_agents.nooa_agent.invocation import Invocation, Invoked


async def invoke_bench_agent(agent: Any, invocation: Invocation) -> Invoked:
    """Run the task to its end; the agent's shell is closed whatever happens."""
    task_input = {"user_message": invocation.task, "instructions": invocation.instructions, "working_dir": invocation.workdir}
    try:
        done = await agent._run_evaluation(task_input)
    finally:
        await agent.shell.close()
    result = done.get("result")
    if not done.get("success"):
        return Invoked("", result, gave_up=str(done.get("error") or "it described no solution"))
    return Invoked(json.dumps(result) if isinstance(result, dict) else str(done.get("response") or ""), result)
