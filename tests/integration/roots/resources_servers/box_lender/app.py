"""A resources server for tests: lends a sandbox, has one tool, and rewards its use."""

from typing import Any

from resources_servers.box_lender.config import Config

from gym.protocol.resources import BaseVerifyRequest
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec
from gym.servers import ResourcesServer, ResourcesSession, Scored, tool


class BoxLender(ResourcesServer[int]):
    """The state is how often the tool was used."""

    config: Config

    async def start(self) -> None:
        """Make the provider."""
        self.provider = provider_from_block(self.config.sandbox_provider, self.context.sandbox_providers[self.config.sandbox_provider])

    async def stop(self) -> None:
        """Close the sessions, then the provider."""
        await super().stop()
        await self.provider.aclose()

    async def seed(self, session: ResourcesSession[int], task_data: dict[str, Any]) -> None:
        """Lend a sandbox."""
        session.state = 0
        spec = SandboxSpec(image=self.config.image, ttl_s=600, metadata=self.config.metadata)
        ownership = Ownership(self.context.run_id, self.context.instance, session_id=session.id)
        box = await OwnedSandbox.start(self.provider, spec, ownership, leases=self.context.leases.at(self.config.sandbox_provider))
        session.on_release("the sandbox", box.stop)
        session.sandbox_access = box.serialize(self.config.sandbox_provider)

    @tool
    async def touch(self, session: ResourcesSession[int]) -> dict[str, int]:
        """Be used."""
        session.state += 1
        return {"touched": session.state}

    async def verify(self, session: ResourcesSession[int] | None, request: BaseVerifyRequest) -> Scored:
        """Whether the tool was used."""
        return Scored(float(session is not None and session.state > 0))
