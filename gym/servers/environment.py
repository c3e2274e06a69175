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
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

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

log = logging.getLogger("gym.servers.environment")

TaskInput = TypeVar("TaskInput", bound=BaseModel)


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

    def fail(self, error: Exception, *, stage: Stage | None = None) -> EpisodeFailed:
        """`error` as the failure that ends this episode, in `stage` or the one it is in."""
        return EpisodeFailed(failure_of(error, stage or self.stage))


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
        self._journal: Journal | None = None

    async def run_episode(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        """Run the episode and return its result. Set `episode.stage` on the way; register cleanup before asking for things."""
        raise ContractError(501, f"{type(self).__name__} runs no episodes")

    def route_specs(self) -> list[RouteSpec]:
        """The contract's routes. A caller that goes away cancels its episode, which then cleans up."""
        return [
            RouteSpec(routes.RUN, self._run, Access.CONTROL, leaves_with_client=True),
            RouteSpec(routes.AGGREGATE_METRICS, self.aggregate_metrics, Access.CONTROL),
        ]

    async def aggregate_metrics(self, call: Call) -> Any:
        """Metrics of the benchmark's own; by default there are none."""
        return {"agent_metrics": {}}

    async def start(self) -> None:
        """Open the journal, and close what a predecessor that died left open."""
        self._journal = Journal(self.context.state_dir / f"{self.context.instance}.journal")
        for debt in self._journal.debts:
            await self._pay(debt)

    async def stop(self) -> None:
        """Cancel what still runs, wait for its cleanup, and close the journal; what is still owed stays in it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=3 * self.config.cleanup_timeout_seconds)
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def _pay(self, debt: Debt) -> None:
        try:
            await self.context.peer(debt.peer).post(debt.route, debt.body, timeout=self.config.cleanup_timeout_seconds)
        except (CallError, KeyError) as error:
            log.warning("cannot close %s of %s, left open by a server that died: %s", debt.key, debt.peer, error)
        else:
            log.info("closed %s of %s, left open by a server that died", debt.key, debt.peer)
            if self._journal is not None:
                self._journal.paid(debt.key)

    def owe_close(self, episode: Episode[TaskInput], peer: str, route: str, body: dict[str, Any], key: str) -> CleanupHandle:
        """Journal and register the close of a session that is about to be asked for; returns its cleanup handle.

        Its `close()` returns the parsed reply.
        """
        assert self._journal is not None
        self._journal.owe(Debt(key, peer, route, body))

        async def close() -> Any:
            reply = await self.context.peer(peer).post(route, body, timeout=None)
            if self._journal is not None:
                self._journal.paid(key)
            return reply.json()

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
            return await self.run(call.json())
        finally:
            self._tasks.discard(task)

    async def run(self, body: Any) -> dict[str, Any]:
        """One episode from a `/run` body to its answer. Raises ContractError only if the episode cannot be identified."""
        request = parse(EpisodeRequest[dict[str, Any]], body, "the body of /run")
        identity = {"episode_id": request.episode_id.model_dump(), "task_id": request.task.task_id.model_dump()}
        try:
            typed = parse(EpisodeRequest[self.task_input_model], body, "the body of /run")
        except ContractError as error:
            return {**identity, "failure": _failure_body(failure_of(error, "admission"), {})}
        episode: Episode[TaskInput] = Episode(typed, self.config.cleanup_timeout_seconds)
        try:
            async with self._admitted():
                return {**identity, **await self._run_admitted(episode)}
        except EpisodeFailed as failed:
            return {**identity, "failure": _failure_body(failed.failure, {})}

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """A place among the running episodes. Raises EpisodeFailed (stage admission) if none comes free in time."""
        if self._slots is None:
            yield
            return
        self._queued += 1
        try:
            async with asyncio.timeout(self.config.queue_timeout_seconds):
                await self._slots.acquire()
        except TimeoutError:
            waited = f"{self.config.queue_timeout_seconds:g} s"
            reason = f"no place came free within queue_timeout_seconds ({waited}; {self.config.max_concurrent_episodes} episodes may run at once)"
            failure = EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="environment_server_failed", stage="admission")
            raise EpisodeFailed(failure) from None
        finally:
            self._queued -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _run_admitted(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        self._episodes[id(episode)] = episode
        try:
            return await self._run_within_deadline(episode)
        finally:
            try:
                await episode.cleanup.unwind()
            finally:
                del self._episodes[id(episode)]

    async def _run_within_deadline(self, episode: Episode[TaskInput]) -> dict[str, Any]:
        limit = self.config.default_episode_timeout_seconds
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                return {"result": await self.run_episode(episode)}
        except TimeoutError as error:
            if not deadline.expired():
                failure = failure_of(error, episode.stage)
            else:
                reason = f"the episode ran longer than default_episode_timeout_seconds ({limit:g} s) and was stopped in stage {episode.stage}"
                failure = EpisodeFailure(failure_reason=reason, terminal=False, failure_kind="cancelled", stage=episode.stage)
        except Exception as error:
            if not isinstance(error, (EpisodeFailed, CallError, ContractError)):
                log.exception("episode %s broke in stage %s", episode.id.capture_key, episode.stage)
            failure = failure_of(error, episode.stage)
        return {"failure": _failure_body(failure, episode.partial)}


def _failure_body(failure: EpisodeFailure, partial: dict[str, Any]) -> dict[str, Any]:
    return {**failure.model_dump(mode="json", exclude_none=True), **{key: value for key, value in partial.items() if value is not None}}
