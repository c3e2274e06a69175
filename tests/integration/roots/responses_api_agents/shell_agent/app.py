"""A scripted agent: it runs the task's input as a bash script in the borrowed sandbox, as a model's tool call would."""

from responses_api_agents.shell_agent.config import Config

from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.sandbox.handles import BorrowedSandbox
from gym.servers import AgentSession
from gym.servers.sandbox_agents import SandboxAgentServer, run_in


class ShellAgent(SandboxAgentServer[BorrowedSandbox]):
    """Says what the script printed."""

    config: Config

    async def open_session(self, session: AgentSession[BorrowedSandbox]) -> None:
        session.state = await self.borrow(session)

    async def respond(self, session: AgentSession[BorrowedSandbox], params: ResponseCreateParams, prefix: str) -> Response:
        assert isinstance(params.input, str)
        done = await run_in(session.state, "bash -s 2>&1", 120, stdin=params.input.encode())
        return Response(id=f"resp_{session.id}", model="shell", status="completed", output=[assistant_message(done.stdout)])
