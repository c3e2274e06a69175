"""A resources server for tests: does to each session what its row says, and writes down what was done to it."""

import asyncio
import os
from typing import Any

import orjson
from pydantic import BaseModel
from resources_servers.faulty.config import Config

from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.servers import ResourcesServer, ResourcesSession, Scored, tool


class Touch(BaseModel):
    """The tool's arguments."""

    number: int = 0


class FaultyServer(ResourcesServer[dict[str, Any]]):
    """A row may say: seed_seconds, seed_status, release_failures, release_seconds, verify_status, verify_seconds, reward."""

    config: Config

    def note(self, what: str, session: ResourcesSession[dict[str, Any]] | None, **more: Any) -> None:
        """Append an event."""
        episode = session.episode_id.capture_key if session is not None and session.episode_id is not None else None
        line = orjson.dumps({"what": what, "episode": episode, **more}, option=orjson.OPT_APPEND_NEWLINE)
        file = os.open(self.config.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line)
        os.close(file)

    async def seed(self, session: ResourcesSession[dict[str, Any]], task_data: dict[str, Any]) -> None:
        """Hold a resource from here on."""
        failures = [task_data.get("release_failures", 0)]

        async def release() -> None:
            await asyncio.sleep(task_data.get("release_seconds", 0))
            if failures[0]:
                failures[0] -= 1
                self.note("release failed", session)
                raise OSError("it is stuck")
            self.note("released", session)

        self.note("seed", session, data=task_data)
        session.on_release("it", release)
        await asyncio.sleep(task_data.get("seed_seconds", 0))
        if "seed_status" in task_data:
            raise ContractError(task_data["seed_status"], "the seed was told to fail")
        session.state = task_data
        self.note("seeded", session)

    @tool
    async def touch(self, session: ResourcesSession[dict[str, Any]], arguments: Touch) -> dict[str, Any]:
        """Be called."""
        self.note("touched", session, number=arguments.number)
        return {"touched": arguments.number}

    async def verify(self, session: ResourcesSession[dict[str, Any]] | None, request: BaseVerifyRequest) -> Scored:
        """Give the reward that the row says."""
        self.note("verify", session, response=request.response.model_dump(mode="json", exclude_unset=True))
        data = request.task_data()
        await asyncio.sleep(data.get("verify_seconds", 0))
        if "verify_status" in data:
            raise ContractError(data["verify_status"], "the verifier was told to fail", kind="verifier_error")
        return Scored(data.get("reward", 1.0), {"own_field": "kept"})
