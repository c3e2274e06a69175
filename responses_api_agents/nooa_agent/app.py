"""NOOA as an agent: a session is one activation of one of its agents, in the task's sandbox or in this server.

Invariants: the agent gets the rollout's token and the task's tools, and no other secret; of a session in this server it is known
that its thread has ended before the close answers, and of one in a sandbox that nothing of it runs.
"""

import asyncio
import logging
import shutil
import tempfile
from dataclasses import dataclass

from gym.config.schema import AgentConfig
from gym.harness.adapter import Ending, Launch, ModelAccess, Place, Transcript
from gym.harness.server import HarnessServer, HarnessSession
from gym.harness.tools import refuse_unusable
from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.protocol.responses import Response, ResponseCreateParams
from gym.servers.agents import AgentSession
from gym.servers.context import ServerContext, for_episode
from responses_api_agents.nooa_agent.adapter import SESSIONS, TITLE, Nooa
from responses_api_agents.nooa_agent.config import Config
from responses_api_agents.nooa_agent.jobs import access_of, as_text, grant_of, job_of
from responses_api_agents.nooa_agent.records import transcript_of
from responses_api_agents.nooa_agent.runner.litellm_stub import install

install()  # before anything of NOOA's is imported: models are called by GymResponsesLLM alone

from responses_api_agents.nooa_agent.embedded import EmbeddedRun  # noqa: E402
from responses_api_agents.nooa_agent.runner.activation import Job, adapter_of, agent_class_of  # noqa: E402

log = logging.getLogger("gym.nooa")


@dataclass
class _Embedded:
    """A session of the mode `embedded`."""

    run: EmbeddedRun
    folder: str
    answered: bool = False


class NooaAgent(HarnessServer):
    """One session is one activation of an agent of NOOA's."""

    config: Config
    sessions_folder = SESSIONS

    def __init__(self, config: AgentConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        agent_class_of(self.config.nooa.agent_class)
        adapter_of(self.config.nooa.invocation_adapter)
        self._embedded: dict[str, _Embedded] = {}

    def make_adapter(self) -> Nooa:
        """NOOA, as configured."""
        return Nooa(self.config)

    async def start(self) -> None:
        """Have the runtime at hand, or say what there is none of."""
        if self.config.in_sandbox:
            await super().start()
        else:
            log.warning(
                "%s runs NOOA embedded: the policy's Python has this server's files, processes and network, without any protection",
                self.context.instance,
            )

    async def open_session(self, session: AgentSession[HarnessSession]) -> None:
        """Borrow the sandbox, or make a folder to work in."""
        grant_of(session.tool_accesses)
        if self.config.in_sandbox:
            await super().open_session(session)
            return
        refuse_unusable(session.tool_accesses, self.config.tool_transports or (), TITLE)
        folder = tempfile.mkdtemp(prefix="nooa-", dir=self.context.state_dir)
        self._embedded[session.id] = _Embedded(EmbeddedRun(), folder)

        async def drop_folder() -> None:
            self._embedded.pop(session.id, None)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

        session.on_release("its folder", drop_folder)

    async def respond(self, session: AgentSession[HarnessSession], params: ResponseCreateParams, prefix: str) -> Response:
        """Run the agent to its end, or to its time-out."""
        return (
            await super().respond(session, params, prefix) if self.config.in_sandbox else await self._respond_here(session, params, prefix)
        )

    async def close_session(self, session: AgentSession[HarnessSession]) -> None:
        """End the agent for certain, and report what it did."""
        if self.config.in_sandbox:
            await super().close_session(session)
            self._report(session, session.state.transcript)
            return
        here = self._embedded[session.id]
        if not await here.run.end():
            raise self._unknown()
        transcript = transcript_of(list(here.run.records), None)
        if here.run.begun and not here.answered:
            session.partial_response = self.response_of(session, transcript)
        session.observations = {"harness": TITLE, **(session.observations or {}), **transcript.observations}
        self._report(session, transcript if here.run.begun else None)

    def told(self, session: AgentSession[HarnessSession], params: ResponseCreateParams) -> str:
        """The job."""
        return as_text(job_of(self.config, params, session.state.run.box.workdir))

    async def launch_of(
        self, session: AgentSession[HarnessSession], params: ResponseCreateParams, model: ModelAccess, place: Place
    ) -> Launch:
        """The worker, with its addresses and secrets."""
        adapter, box = self.adapter, session.state.run.box
        assert isinstance(adapter, Nooa)

        async def inside(url: str) -> str:
            return await self.url_inside(session, box, url)

        mine = {"base_url": model.base_url, "token": model.token}
        access = await access_of(mine, grant_of(session.tool_accesses), for_episode(session.episode_id), inside)
        return adapter.worker(place, as_text(access))

    async def _respond_here(self, session: AgentSession[HarnessSession], params: ResponseCreateParams, prefix: str) -> Response:
        assert session.episode_id is not None
        here, key = self._embedded[session.id], session.episode_id.capture_key
        job = Job(**job_of(self.config, params, here.folder))
        base = self.context.info(self.config.model_server).url
        model = {"base_url": f"{base}{prefix or routes.rollout_prefix(key)}/v1", "token": self.context.credentials.rollout_token(key)}

        async def as_it_is(url: str) -> str:
            return url

        access = await access_of(model, grant_of(session.tool_accesses), for_episode(session.episode_id), as_it_is)
        ending: Ending | None = await here.run.run(job, access, self.config.timeout)
        if ending is None:
            raise self._unknown()
        transcript = transcript_of(list(here.run.records), ending)
        session.observations = {"seconds": ending.seconds}
        if transcript.outcome == "failed":
            raise self.failure_of(transcript)
        here.answered = True
        return self.response_of(session, transcript)

    def _report(self, session: AgentSession[HarnessSession], transcript: Transcript | None) -> None:
        grant = grant_of(session.tool_accesses)
        session.resources_cookies = (transcript.cookies if transcript else None) or (dict(grant.cookies) if grant else None) or None
        session.trajectory = transcript.trajectory if transcript else None
        session.observations = {**(session.observations or {}), "execution_mode": self.config.nooa.execution_mode}

    def _unknown(self) -> ContractError:
        reason = f"{TITLE} launch outcome is unknown; cannot confirm termination"
        return ContractError(500, reason, kind="environment_server_failed", terminal=False)
