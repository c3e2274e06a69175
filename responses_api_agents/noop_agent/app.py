"""The agent that does nothing: the other half of checking a task."""

import asyncio

from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.servers import AgentServer, AgentSession
from responses_api_agents.noop_agent.config import Config


class NoopAgent(AgentServer[None]):
    """Answers at once, or after `sleep_seconds`."""

    config: Config

    async def respond(self, session: AgentSession[None], params: ResponseCreateParams, prefix: str) -> Response:
        """Do nothing."""
        await asyncio.sleep(self.config.sleep_seconds)
        return Response(id=f"resp_{session.id}", model="noop", status="completed", output=[assistant_message("I did nothing.")])
