"""The base of environment servers: admission, deadline, cleanup and the answer of one episode.

Invariants: `/run` answers with exactly one of result and failure, under the identities it was
asked with; what an episode registered for cleanup is given back before the answer, also when the
caller goes away, and journalled for the case that this process dies; a verdict once given is not
lost by a cleanup that fails.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from gym.client import CallError
from gym.config.schema import EnvironmentServerConfig, Kind
from gym.protocol import routes
from gym.protocol.environments import EpisodeRequest
from gym.protocol.errors import ContractError, redacted
from gym.protocol.failures import EpisodeFailure, Stage, bounded_reason
from gym.protocol.ids import EpisodeId, TaskId
from gym.servers.base import RouteSpec, Server
from gym.servers.cleanup import CleanupHandle, CleanupStack
from gym.servers.context import ServerContext
from gym.servers.http import Access, Call, parse
from gym.servers.journal import Debt, Journal
from gym.servers.rollout_capture import CLOSE_SECONDS, UsedKeys

log = logging.getLogger("gym.servers.environment")

TaskInput = TypeVar("TaskInput", bound=BaseModel)

_FULL_RETRY_SECONDS = 1.0
"""When to knock again at a full server."""

_SETTLE_SECONDS = 60.0
"""How often sessions that could not be closed are tried again."""


class _TaskIdentity(BaseModel):
    task_id: TaskId


class _Identity(BaseModel):
    """The part of a `/run` body that an answer needs."""

    episode_id: EpisodeId
    task: _TaskIdentity


class EpisodeFailed(Exception):
    """Ends an episode with this failure."""

    def __init__(self, failure: EpisodeFailure) -> None:
        super().__init__(failure.failure_reason)
        self.failure = failure


class Episode(Generic[TaskInput]):
    """One episode on its way: its identity, its input, how far it is, and what it must give back."""

    def __init__(self, request: EpisodeRequest[TaskInput], cleanup_timeout: float) -> None:
        self.id: EpisodeId = request.episode_id
        self.task_id: TaskId = request.task.task_id
        self.task_input: TaskInput = request.task.task_input
        self.stage: Stage = "admission"
        self.started = time.monotonic()
        self.cleanup = CleanupStack(cleanup_timeout)
        self.partial: dict[str, Any] = {}
        """Goes into a failure: what is worth keeping of an episode that did not end well."""
        self.result: dict[str, Any] | None = None
        """The verdict once there is one; nothing that happens later takes it away."""
        self.debts: set[str] = set()
        """The journal's keys of what it will close itself."""


def failure_of(error: Exception, stage: Stage) -> EpisodeFailure:
    """What an exception means for an episode: a call's own kind and finality, else a broken environment server."""
    if isinstance(error, EpisodeFailed):
        return error.failure
    if isinstance(error, (CallError, ContractError)):
        return EpisodeFailure(failure_reason=error.message, terminal=error.terminal, failure_kind=error.kind, stage=stage)
    reason = redacted(bounded_reason(f"{type(error).__name__}: {error}"))
    return EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="environment_server_failed", stage=stage)


class EnvironmentServer(Server, Generic[TaskInput]):
    """Subclass this to order an episode's calls in another way."""

    kind: ClassVar[Kind] = "environment_servers"
    config: EnvironmentServerConfig
    task_input_model: type[TaskInput]
    """The model of `task.task_input`; set by the subclass."""

    def __init__(self, config: EnvironmentServerConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self._slots = asyncio.Semaphore(config.max_concurrent_episodes) if config.max_concurrent_episodes else None
        self._episodes: dict[int, Episode[TaskInput]] = {}
        self._queued = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._journal: Journal | None = None
        self.used_keys = UsedKeys(unsure=False)

    async def run_episode(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        """Run the episode and return its result. Set `episode.stage` on the way; register cleanup before asking for things."""
        raise ContractError(501, f"{type(self).__name__} runs no episodes")

    def route_specs(self) -> list[RouteSpec]:
        """The contract's routes. A caller that goes away cancels its episode, which then cleans up."""
        return [
            RouteSpec(routes.RUN, self._run, Access.CONTROL, leaves_with_client=True, own_task=True, broken="environment_server_failed"),
            RouteSpec(routes.AGGREGATE_METRICS, self.aggregate_metrics, Access.CONTROL),
        ]

    async def aggregate_metrics(self, call: Call) -> Any:
        """Metrics of the benchmark's own; by default there are none."""
        return {"agent_metrics": {}}

    async def start(self) -> None:
        """Open the journal, which may hold what a predecessor that died left open."""
        path = self.context.state_dir / f"{self.context.instance}.journal"
        self.used_keys = UsedKeys(unsure=path.exists())
        self._journal = Journal(path)

    def background(self) -> list[Any]:
        """The payer of old debts."""
        return [self._settle_debts()]

    async def wind_up(self) -> None:
        """Cancel what still runs, and wait until it has cleaned up and answered."""
        self.draining = self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=3 * self.config.cleanup_timeout_seconds + CLOSE_SECONDS)

    async def stop(self) -> None:
        """End what still runs and close the journal; what is still owed stays in it."""
        await self.wind_up()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def _settle_debts(self) -> None:
        """Close what a predecessor that died left open, and what no episode of ours that has ended could close."""
        while self._journal is not None:
            running = {key for episode in self._episodes.values() for key in episode.debts}
            await asyncio.gather(*(self._pay(debt) for debt in self._journal.debts if debt.key not in running))
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _pay(self, debt: Debt) -> None:
        try:
            await self.context.peer(debt.peer).post(debt.route, debt.body, timeout=self.config.cleanup_timeout_seconds)
        except Exception as error:
            log.warning("cannot close %s of %s, which was left open: %s", debt.key, debt.peer, error)
            if not isinstance(error, CallError) or not error.terminal:
                return
        else:
            log.info("closed %s of %s, which was left open", debt.key, debt.peer)
        if self._journal is not None:
            self._journal.paid(debt.key)

    def owe_close(
        self,
        episode: Episode[TaskInput],
        peer: str,
        route: str,
        body: dict[str, Any],
        key: str,
        then: Callable[[Any], None] = lambda reply: None,
    ) -> CleanupHandle:
        """Journal and register the close of a session that is about to be asked for; returns its cleanup handle.

        Its `close()` returns the parsed reply, which `then` gets whoever closes. Raises ContractError
        (persistence_failed) if the journal cannot be written.
        """
        assert self._journal is not None
        try:
            self._journal.owe(Debt(key, peer, route, body))
        except OSError as error:
            reason = f"the journal of {self.context.instance} cannot be written: {error.strerror or error}"
            raise ContractError(500, reason, kind="persistence_failed", terminal=False) from error
        episode.debts.add(key)

        async def close() -> Any:
            reply = await self.context.peer(peer, episode.id).post(route, body, timeout=None)
            if self._journal is not None:
                self._journal.paid(key)
            try:
                value = reply.json()
            except ValueError as error:
                raise ContractError(502, f"{peer} answered {route} with something that is not JSON", terminal=True) from error
            then(value)
            return value

        return episode.cleanup.register(f"{key} of {peer}", close)

    def running_count(self) -> int:
        """Episodes that are running or waiting."""
        return len(self._episodes) + self._queued

    def status(self) -> dict[str, Any]:
        """Every running episode with its stage and age in seconds."""
        now = time.monotonic()
        episodes = [
            {"episode": e.id.capture_key, "task": e.task_id.task_id, "stage": e.stage, "age_s": round(now - e.started, 1)}
            for e in self._episodes.values()
        ]
        return {"episodes": episodes, "queued": self._queued}

    async def _run(self, call: Call) -> dict[str, Any]:
        self.refuse_while_draining()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await self.answer(call)
        finally:
            self._tasks.discard(task)

    async def answer(self, call: Call) -> Any:
        """What `/run` is answered with; override it where other bodies than episodes are taken."""
        return await self.run(call.json())

    async def run(self, body: Any) -> dict[str, Any]:
        """One episode from a `/run` body to its answer. Raises ContractError only if the episode cannot be identified."""
        try:
            request = parse(EpisodeRequest[self.task_input_model], body, "the body of /run")
        except ContractError as error:
            try:
                known = _Identity.model_validate(body)
            except ValidationError:
                raise error from None
            return {**_identity(known.episode_id, known.task.task_id), "failure": _failure_body(failure_of(error, "admission"), {})}
        episode: Episode[TaskInput] = Episode(request, self.config.cleanup_timeout_seconds)
        identity = _identity(episode.id, episode.task_id)
        try:
            async with self._admitted():
                return {**identity, "result": await self._run_admitted(episode)}
        except EpisodeFailed as failed:
            failure = failed.failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._stopping or task is None:
                raise
            task.uncancel()  # it was us: the caller is still there and gets an answer
            if episode.result is not None:
                return {**identity, "result": episode.result}
            reason = f"the servers were stopping, and the episode was cancelled in stage {episode.stage}"
            failure = EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="shutdown", stage=episode.stage)
        return {**identity, "failure": _failure_body(failure, episode.partial)}

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncGenerator[None]:
        """A place among the running episodes.

        Raises EpisodeFailed (stage admission) if none comes free in time, ContractError (503) if too many wait already.
        """
        if self._slots is None:
            yield
            return
        most_queued = self.config.max_queued_episodes
        if most_queued is not None and self._slots.locked() and self._queued >= most_queued:
            reason = f"{self.context.instance} is full: {self._queued} episode(s) wait already (max_queued_episodes: {most_queued})"
            raise ContractError(503, reason, kind="environment_server_failed", terminal=False, retry_after=_FULL_RETRY_SECONDS)
        self._queued += 1
        try:
            async with asyncio.timeout(self.config.queue_timeout_seconds):
                await self._slots.acquire()
        except TimeoutError:
            waited = f"{self.config.queue_timeout_seconds:g} s"
            most = self.config.max_concurrent_episodes
            reason = f"no place came free within queue_timeout_seconds ({waited}; max_concurrent_episodes: {most})"
            failure = EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="environment_server_failed", stage="admission")
            raise EpisodeFailed(failure) from None
        finally:
            self._queued -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _run_admitted(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        """The result, once all is given back. What has a verdict by then tries its last close twice, outside of the deadline."""
        self._episodes[id(episode)] = episode
        try:
            episode.result = await self._run_within_deadline(episode)
            return episode.result
        finally:
            try:
                await episode.cleanup.unwind(tries=1 if episode.result is None else 2)
            finally:
                del self._episodes[id(episode)]

    async def _run_within_deadline(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        """What `run_episode` returns. Raises EpisodeFailed."""
        limit = self.config.default_episode_timeout_seconds
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                return await self.run_episode(episode)
        except TimeoutError as error:
            if not deadline.expired():
                failure = failure_of(error, episode.stage)
            else:
                reason = f"the episode ran longer than default_episode_timeout_seconds ({limit:g} s) and was stopped ({episode.stage})"
                failure = EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="cancelled", stage=episode.stage)
        except Exception as error:
            if not isinstance(error, (EpisodeFailed, CallError, ContractError)):
                log.exception("episode %s broke in stage %s", episode.id.capture_key, episode.stage)
            failure = failure_of(error, episode.stage)
        raise EpisodeFailed(failure)


def _identity(episode_id: EpisodeId, task_id: TaskId) -> dict[str, Any]:
    return {"episode_id": episode_id.model_dump(), "task_id": task_id.model_dump()}


def _failure_body(failure: EpisodeFailure, partial: dict[str, Any]) -> dict[str, Any]:
    return {**failure.model_dump(mode="json", exclude_none=True), **{key: value for key, value in partial.items() if value is not None}}
