"""A small agent for tasks that are done with the task's own tools, and how it is invoked: an example of a custom pair."""

from typing import Any

from nooa import Agent, CodeActStrategy, strategy
from nooa.config import CodeActConfig
from nooa.context_blocks import DynamicContext
from nooa.unifiedllm import FakeLLMClient

from responses_api_agents.nooa_agent.invocation import Invocation, Invoked


class ResourceAgent(Agent, llm=FakeLLMClient(), context={"task": DynamicContext(expr="self.task")}):
    """Does a task with the methods that the task gives it: `await self.<method>(...)` in `execute_python`."""

    task: str = ""

    @strategy(CodeActStrategy(config=CodeActConfig(max_iterations=30, max_retries=5, text_only_stop_behavior="return_result")))
    async def solve(self, task: str) -> str:
        """Do the task with the methods of ``self`` and return a short report of what was done.

        ## Task
        {task}
        """
        ...  # noqa: PIE790 - it is how NOOA knows that the policy carries this out


async def invoke_resource_agent(agent: Any, invocation: Invocation) -> Invoked:
    """Run the task to its end; what the agent could not bring to a result is graded as it stands."""
    task = "\n\n".join(filter(None, (invocation.instructions, invocation.task)))
    agent.task = task
    try:
        report = await agent.solve(task)
    except Exception as error:
        return Invoked("", gave_up=f"{type(error).__name__}: {error}")
    return Invoked(str(report), report)
