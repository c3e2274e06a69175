"""The agent that knows the answer: it applies the gold patch in the borrowed sandbox, on the path of any harness.

It gets the patch from its resources server, which hands it out only where its configuration says so.
"""

from dataclasses import dataclass

from gym.client import Peer
from gym.protocol.access import DirectHTTPToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import ExecResult, SandboxError
from gym.servers import AgentServer, AgentSession, ServerContext
from gym.servers.context import for_episode
from responses_api_agents.oracle_agent.config import Config

_PATCH = "/tmp/gym-oracle.diff"
_APPLY = f"git apply --whitespace=nowarn {_PATCH} || patch --batch --no-backup-if-mismatch --fuzz=5 -p1 -i {_PATCH}"


@dataclass
class Oracle:
    """What a session holds."""

    box: BorrowedSandbox
    grant: DirectHTTPToolAccess


class OracleAgent(AgentServer[Oracle]):
    """Needs a sandbox, and a direct HTTP grant to a server that exposes its gold patches."""

    config: Config

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        self._providers: dict[str, Provider] = {}

    async def start(self) -> None:
        """Make a provider for each block of the configuration."""
        self._providers = {name: provider_from_block(name, block) for name, block in self.context.sandbox_providers.items()}

    async def stop(self) -> None:
        """Close every session, then the providers."""
        await super().stop()
        for provider in self._providers.values():
            await provider.aclose()

    async def open_session(self, session: AgentSession[Oracle]) -> None:
        """Borrow the sandbox."""
        grant = next((access for access in session.tool_accesses if isinstance(access, DirectHTTPToolAccess)), None)
        if session.sandbox_access is None or grant is None:
            lacking = "sandbox" if session.sandbox_access is None else "direct_http grant (resources_tool_transports)"
            raise ContractError(422, f"oracle_agent was given no {lacking}")
        try:
            box = await BorrowedSandbox.connect(session.sandbox_access, self._providers)
        except SandboxError as error:
            raise ContractError(503, f"cannot reach the sandbox: {error}", kind=error.kind, terminal=False) from error
        session.state = Oracle(box, grant)

        async def let_go() -> None:
            box.disconnect()

        session.on_release("the borrowed sandbox", let_go)

    async def respond(self, session: AgentSession[Oracle], params: ResponseCreateParams, prefix: str) -> Response:
        """Fetch the gold patch and apply it."""
        box, grant = session.state.box, session.state.grant
        if self.config.sleep_seconds:
            await self._run(box, f"sleep {self.config.sleep_seconds}", self.config.sleep_seconds + 60)
        server = Peer(grant.name, grant.base_url, self.context.transport, headers=grant.headers | for_episode(session.episode_id))
        gold = (await server.post("/gold_patch", {}, timeout=60, cookies=grant.cookies)).json()["patch"]
        try:
            await box.upload(_PATCH, gold.encode(errors="surrogateescape"))
        except SandboxError as error:
            raise _lost(error.kind, str(error)) from error
        result = await self._run(box, _APPLY, self.config.apply_timeout)
        await self._run(box, f"rm -f {_PATCH}", 60)
        if not result.ok:
            said = (result.stdout + result.stderr).strip()[-500:]
            raise ContractError(500, f"the gold patch does not apply: {said}", kind="agent_run_error", terminal=True)
        message = assistant_message("I applied the gold patch.")
        return Response(id=f"resp_{session.id}", model="oracle", status="completed", output=[message])

    async def _run(self, box: BorrowedSandbox, command: str, timeout: float) -> ExecResult:
        """Run a command; a sandbox that died under it is a failure of the episode, not of the patch."""
        result = await box.exec(command, timeout_s=timeout)
        if result.error_type == "sandbox":
            raise _lost("session_lost", f"the sandbox died while the agent worked: {result.stderr.strip()[-300:]}")
        return result


def _lost(kind: str, message: str) -> ContractError:
    return ContractError(503, message, kind=kind, terminal=False)
