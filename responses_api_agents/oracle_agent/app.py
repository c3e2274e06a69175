"""The agent that knows the answer: it applies the gold patch in the borrowed sandbox, on the path of any harness.

It gets the patch from its resources server, which hands it out only where its configuration says so.
"""

from dataclasses import dataclass

from gym.client import Peer
from gym.protocol.access import DirectHTTPToolAccess
from gym.protocol.errors import ContractError
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.spec import SandboxError
from gym.servers import AgentSession
from gym.servers.context import for_episode
from gym.servers.sandbox_agents import SandboxAgentServer, run_in, sandbox_lost
from responses_api_agents.oracle_agent.config import Config

_PATCH = "/tmp/gym-oracle.diff"
_APPLY = f"git apply --whitespace=nowarn {_PATCH} || patch --batch --no-backup-if-mismatch --fuzz=5 -p1 -i {_PATCH}"


@dataclass
class Oracle:
    """What a session holds."""

    box: BorrowedSandbox
    grant: DirectHTTPToolAccess


class OracleAgent(SandboxAgentServer[Oracle]):
    """Needs a sandbox, and a direct HTTP grant to a server that exposes its gold patches."""

    config: Config

    async def open_session(self, session: AgentSession[Oracle]) -> None:
        """Borrow the sandbox."""
        grant = next((access for access in session.tool_accesses if isinstance(access, DirectHTTPToolAccess)), None)
        if grant is None:
            raise ContractError(422, "oracle_agent was given no direct_http grant (resources_tool_transports)")
        session.state = Oracle(await self.borrow(session), grant)

    async def respond(self, session: AgentSession[Oracle], params: ResponseCreateParams, prefix: str) -> Response:
        """Fetch the gold patch and apply it."""
        box, grant = session.state.box, session.state.grant
        if self.config.sleep_seconds:
            await run_in(box, f"sleep {self.config.sleep_seconds}", self.config.sleep_seconds + 60)
        server = Peer(grant.name, grant.base_url, self.context.transport, headers=grant.headers | for_episode(session.episode_id))
        gold = (await server.post("/gold_patch", {}, timeout=60, cookies=grant.cookies)).json()["patch"]
        try:
            await box.upload(_PATCH, gold.encode(errors="surrogateescape"))
        except SandboxError as error:
            raise sandbox_lost(error.kind, str(error)) from error
        result = await run_in(box, _APPLY, self.config.apply_timeout)
        await run_in(box, f"rm -f {_PATCH}", 60)
        if not result.ok:
            said = (result.stdout + result.stderr).strip()[-500:]
            raise ContractError(500, f"the gold patch does not apply: {said}", kind="agent_run_error", terminal=True)
        message = assistant_message("I applied the gold patch.")
        return Response(id=f"resp_{session.id}", model="oracle", status="completed", output=[message])
