"""The agent server of command-line harnesses: a session is one run of one harness in the task's sandbox.

Invariants: the harness gets the rollout's token and no other; what the harness says of itself is evidence; a close answers
only when nothing of the harness runs any more. A run that is stopped for time, or by the policy's own doing, is a response that
can be graded; one that broke is a failure of the episode.
"""

import asyncio
import logging
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gym.config.schema import AgentConfig
from gym.harness.adapter import Adapter, Ending, Launch, MCPServer, ModelAccess, Place, Transcript
from gym.harness.bundle import Built, ensure
from gym.harness.config import HarnessConfig
from gym.harness.placing import place as place_bundle
from gym.harness.prompt import prompt_of
from gym.harness.run import SESSIONS, HarnessRun
from gym.harness.tools import granted_servers, refuse_unusable, with_common_names
from gym.protocol import routes
from gym.protocol.errors import ContractError, redacted
from gym.protocol.responses import Response, ResponseCreateParams
from gym.servers.agents import AgentSession
from gym.servers.context import ServerContext
from gym.servers.sandbox_agents import SandboxAgentServer

log = logging.getLogger("gym.harness")


@dataclass
class HarnessSession:
    """What a session holds."""

    run: HarnessRun
    binaries: str = ""
    """Where the bundle is in the sandbox."""
    servers: tuple[MCPServer, ...] = ()
    """The tools that it was granted."""
    answered: bool = False
    """Whether the activation came to its end with a response."""
    observations: dict[str, Any] = field(default_factory=dict[str, Any])
    transcript: Transcript | None = None
    """As last read."""


class HarnessServer(SandboxAgentServer[HarnessSession]):
    """Subclass this with `make_adapter` to serve a harness."""

    config: HarnessConfig
    sessions_folder: ClassVar[str] = SESSIONS
    """In sandboxes."""

    def __init__(self, config: AgentConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self.adapter = self.make_adapter()
        self._built: Built | None = None

    def make_adapter(self) -> Adapter:
        """The harness; `self.config` is set."""
        raise ContractError(501, f"{type(self).__name__} has no adapter")

    async def start(self) -> None:
        """Make the providers, and have the bundle at hand."""
        await super().start()
        cache = self.context.cache_dir or self.context.state_dir
        self._built = await asyncio.to_thread(ensure, self.adapter.bundle, cache, log.info)

    async def open_session(self, session: AgentSession[HarnessSession]) -> None:
        """Borrow the sandbox and put the harness into it."""
        title = self.adapter.title
        transports = self.config.tool_transports or frozenset()
        refuse_unusable(session.tool_accesses, transports, title)
        if session.episode_id is None:
            raise ContractError(422, f"{title} needs an episode_id: its model calls are made under it")
        assert self._built is not None
        box = await self.borrow(session)
        evidence = Path(tempfile.mkdtemp(prefix="harness-", dir=self.context.state_dir))
        run = HarnessRun(title, box, evidence, self.config.max_transcript_bytes, self.sessions_folder)
        session.state = HarnessSession(run)

        async def drop_evidence() -> None:
            await asyncio.to_thread(shutil.rmtree, evidence, ignore_errors=True)

        session.on_release("its transcript", drop_evidence)
        if "mcp" in transports:
            session.state.servers = await granted_servers(
                session.tool_accesses, lambda url: self.url_inside(session, box, url), self.context.transport
            )
        session.state.binaries = await place_bundle(box, self._built, self.config.setup_timeout)

    def told(self, session: AgentSession[HarnessSession], params: ResponseCreateParams) -> str:
        """What the harness reads on its standard input. Raises ContractError (422)."""
        return prompt_of(params, self.adapter.title, {tool for server in session.state.servers for tool in server.tools})

    async def launch_of(
        self, session: AgentSession[HarnessSession], params: ResponseCreateParams, model: ModelAccess, place: Place
    ) -> Launch:
        """The command. Raises ContractError (422)."""
        return self.adapter.launch(params, model, place, session.state.servers)

    async def respond(self, session: AgentSession[HarnessSession], params: ResponseCreateParams, prefix: str) -> Response:
        """Run the harness to its end, or to its time-out."""
        assert session.episode_id is not None
        state, key = session.state, session.episode_id.capture_key
        prompt = self.told(session, params)
        url = await self.url_inside(session, state.run.box, self.config.model_server)
        await state.run.prepare(prompt, self.config.setup_timeout)
        model = ModelAccess(f"{url}{prefix or routes.rollout_prefix(key)}/v1", self.context.credentials.rollout_token(key))
        place = Place(state.run.folder, state.binaries, state.run.box.workdir)
        launch = await self.launch_of(session, params, model, place)
        ending = await state.run.launch(launch, self.config.prelude, self.config.timeout)
        await state.run.confirm()
        transcript = await self._read(state, ending)
        state.observations = transcript.observations | {"return_code": ending.return_code, "seconds": ending.seconds}
        if transcript.outcome == "failed":
            if ending.oom_killed:
                transcript.kind, transcript.terminal = "provider_oom_killed", False
            transcript.reason += " (the sandbox's disk is full)" if await state.run.disk_full() else ""
            raise self.failure_of(transcript)
        state.answered = True
        return self.response_of(session, transcript)

    async def close_session(self, session: AgentSession[HarnessSession]) -> None:
        """End the harness for certain, and report what it did."""
        state = session.state
        await state.run.end()
        if state.run.launched and not state.answered:
            transcript = await self._read(state, None)
            state.observations = transcript.observations | state.observations
            session.partial_response = self.response_of(session, transcript)
        session.observations = {"harness": self.adapter.title, **state.observations}
        await state.run.remove()

    async def _read(self, state: HarnessSession, ending: Ending | None) -> Transcript:
        await state.run.keep(self.adapter.kept)
        transcript = await asyncio.to_thread(self.adapter.read, state.run.evidence, ending)
        transcript.items = with_common_names(transcript.items, state.servers, self.adapter.tool_name)
        state.transcript = transcript
        return transcript

    def failure_of(self, transcript: Transcript) -> ContractError:
        """The failure of the episode whose harness `failed`."""
        reason = redacted(f"{self.adapter.title} {transcript.reason}")
        return ContractError(502, reason, kind=transcript.kind, terminal=transcript.terminal)

    def response_of(self, session: AgentSession[HarnessSession], transcript: Transcript) -> Response:
        """The usage is left to the record of the model's calls, which the sandbox cannot write."""
        status = "completed" if transcript.outcome == "completed" else "incomplete"
        details = None if status == "completed" else {"reason": transcript.reason}
        return Response(
            id=f"resp_{session.id}",
            model=self.config.model_server.name,
            status=status,
            output=transcript.items,
            incomplete_details=details,
        )
