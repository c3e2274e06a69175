"""In place of the way to environment servers: has the resources server verify a stored response again.

Invariant: a task goes to the resources server as its environment server would have sent it, with nothing of the old
verdict but the patch that it judged; and the old verdict stands whole beside the new one.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from gym.client import CallError, Peer
from gym.protocol import routes
from gym.protocol.environments import SingleAgentTurnTaskInput
from gym.protocol.errors import ContractError
from gym.protocol.failures import BUDGET_EXHAUSTED
from gym.protocol.ids import new_resources_session_id
from gym.protocol.rollouts import ATTEMPT_INDEX, ENVIRONMENT_SERVER, PREVIOUS_VERDICT, ROLLOUT_ID, RUN_ID, TOKEN_CAPTURE
from gym.rollouts.flights import Stages
from gym.rollouts.pace import Traffic
from gym.rollouts.reverify import EXCHANGE, Modes, resources_server
from gym.rollouts.targets import Targets
from gym.servers.replies import check_verdict, object_of
from gym.servers.rollout_capture import mask_without_tokens
from gym.tasks.materialize import RUN_PREFIX

_PATCH = ("model_patch", "model_patch_base64")
"""What an SWE verdict says that is also what it is about: a server judges it again."""
_OF_THE_EPISODE = ("agent_ref", "agent_timed_out", "agent_timeout_seconds", BUDGET_EXHAUSTED, TOKEN_CAPTURE)
"""What a row says of its episode beside `ng_*`: it stays as it was."""
_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 180.0
"""How long a session may take to close that was opened to verify in."""


class Verifier:
    """In place of the way to environment servers: has the resources server verify the stored response."""

    def __init__(
        self,
        rollouts: Path,
        targets: Targets,
        modes: Modes,
        peer: Callable[[str], Peer],
        timeouts: Mapping[str, float | None],
    ) -> None:
        """`timeouts` bound one verification, in seconds, by environment server."""
        self._rollouts, self._targets, self._modes, self._peer, self._timeouts = rollouts, targets, modes, peer, timeouts
        self._file = rollouts.open("rb")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """See `gym.rollouts.dispatch.Dispatcher.run`: the reply is what an environment server would answer."""
        request = orjson.loads(body)
        identity = {"episode_id": request["episode_id"], "task_id": request["task"]["task_id"]}
        try:
            ended = {"result": await self._verify(environment, request)}
        except ContractError as error:
            failure = {"failure_reason": error.message, "terminal": error.terminal, "failure_kind": error.kind, "stage": "verification"}
            ended = {"failure": failure}
        return 200, orjson.dumps({**identity, **ended})

    async def traffic(self) -> Traffic | None:
        """See `Dispatcher.traffic`."""
        return None

    async def stages(self, environments: Iterable[str]) -> Stages | None:
        """See `Dispatcher.stages`: there is only one."""
        return None

    async def model_calls(self, server: str, capture_key: str) -> bytes:
        """See `Dispatcher.model_calls`: those of the episode were saved by the run that ran it."""
        raise CallError("no model is called to verify", kind="protocol_violation", delivery="not_sent", terminal=True)

    async def retire_model_calls(self, server: str, capture_key: str) -> None:
        """See `Dispatcher.retire_model_calls`."""

    async def _verify(self, environment: str, request: dict[str, Any]) -> dict[str, Any]:
        given = request["task"]["task_input"]
        row = self._read(given["rollout"], request["episode_id"]["rollout_id"])
        try:
            data = SingleAgentTurnTaskInput.model_validate(given["task_input"]).task_data
        except ValidationError as error:
            raise ContractError(422, f"the task is none of a single agent: {error.errors(include_url=False)[0]['msg']}") from error
        sent = {**data, **{key: row[key] for key in (*EXCHANGE, *_PATCH) if key in row}}
        name, mode = resources_server(self._targets, environment, self._modes)
        peer, timeout = self._peer(name), self._timeouts.get(environment)
        if mode == "stateless":
            reply = await peer.post(routes.VERIFY, sent, timeout=timeout)
        else:
            async with _seeded(peer, request, data, timeout) as cookies:
                reply = await peer.post(routes.VERIFY, sent, timeout=timeout, cookies=cookies)
        result = object_of(reply, name)
        check_verdict(name, result)
        kept = {key: value for key, value in row.items() if key in _OF_THE_EPISODE or key.startswith("ng_")}
        new = {**result, **kept, PREVIOUS_VERDICT: _previous(row, data)}
        mask_without_tokens(new)
        return new

    def _read(self, place: dict[str, int], rollout_id: str) -> dict[str, Any]:
        try:
            row: Any = orjson.loads(os.pread(self._file.fileno(), place["length"], place["offset"]))
            if row[ROLLOUT_ID] == rollout_id:
                return row
        except (ValueError, KeyError, TypeError):
            pass
        raise ContractError(409, f"{self._rollouts} has changed: rollout {rollout_id!r} is not where it was")


def _previous(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict that the row had: all in it that is neither its task, nor its episode, nor what is judged."""

    def of_verdict(key: str, value: Any) -> bool:
        elsewhere = key in (*EXCHANGE, *_PATCH, *_OF_THE_EPISODE) or key.startswith((RUN_PREFIX, "ng_"))
        return not elsewhere and not (key in data and data[key] == value)

    who = {name: row.get(key) for name, key in (("run_id", RUN_ID), ("attempt", ATTEMPT_INDEX), ("environment_server", ENVIRONMENT_SERVER))}
    return {**who, "verdict": {key: value for key, value in row.items() if of_verdict(key, value)}}


@contextlib.asynccontextmanager
async def _seeded(peer: Peer, request: dict[str, Any], data: dict[str, Any], timeout: float | None) -> AsyncGenerator[Mapping[str, str]]:
    """A session with the row in it, by its cookies; closed whatever happens, also if the answer to the seed was lost."""
    session = {"resources_session_id": new_resources_session_id(), "episode_id": request["episode_id"]}
    try:
        body = {**session, "task_id": request["task"]["task_id"], "task_data": data}
        yield (await peer.post(routes.SEED_SESSION, body, timeout=timeout)).cookies
    finally:
        closing = asyncio.ensure_future(peer.post(routes.CLOSE_SESSION, session, timeout=_CLOSE_SECONDS))
        try:
            await asyncio.shield(closing)
        except CallError as error:
            _log.warning("%s keeps a session that was opened to verify in until it expires: %s", peer.name, error.message)
        except asyncio.CancelledError:
            await asyncio.wait({closing})
            raise
