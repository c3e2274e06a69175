"""The base of agents that work in a borrowed sandbox: the way in, and what it means if the sandbox breaks.

Invariant: the agent borrows. It lets go at its close, and has no way to stop the sandbox.
"""

from collections.abc import Mapping

from gym.config.schema import AgentConfig
from gym.protocol.errors import ContractError
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import ExecResult, SandboxError
from gym.servers.agents import AgentServer, AgentSession, State
from gym.servers.context import ServerContext


class SandboxAgentServer(AgentServer[State]):
    """Subclass this for a harness that works in the task's sandbox; call `borrow` in `open_session`."""

    def __init__(self, config: AgentConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self._providers: Mapping[str, Provider] = {}

    async def start(self) -> None:
        """Make a provider for each block of the configuration."""
        self._providers = {name: provider_from_block(name, block) for name, block in self.context.sandbox_providers.items()}

    async def stop(self) -> None:
        """Close every session, then the providers."""
        await super().stop()
        for provider in self._providers.values():
            await provider.aclose()

    async def borrow(self, session: AgentSession[State]) -> BorrowedSandbox:
        """Reach the sandbox that the session was lent. Raises ContractError: 422 if there is none, 503 if it cannot be reached."""
        if session.sandbox_access is None:
            raise ContractError(422, f"{self.context.instance} was given no sandbox")
        try:
            box = await BorrowedSandbox.connect(session.sandbox_access, self._providers)
        except SandboxError as error:
            raise ContractError(503, f"cannot reach the sandbox: {error}", kind=error.kind, terminal=False) from error

        async def let_go() -> None:
            box.disconnect()

        session.on_release("the borrowed sandbox", let_go)
        return box


async def run_in(
    box: BorrowedSandbox,
    command: str,
    timeout: float,
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> ExecResult:
    """Run a command; a sandbox that died under it is a failure of the episode that may be tried again, not of the agent."""
    try:
        result = await box.exec(command, timeout_s=timeout, stdin=stdin, env=env, user=user)
    except SandboxError as error:
        raise sandbox_lost(error.kind, str(error)) from error
    if result.error_type == "sandbox":
        raise sandbox_lost("session_lost", f"the sandbox died while the agent worked: {result.stderr.strip()[-300:]}")
    return result


def sandbox_lost(kind: str, message: str) -> ContractError:
    """The failure of an episode whose sandbox broke under the agent."""
    return ContractError(503, message, kind=kind, terminal=False)
