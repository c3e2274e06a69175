"""Sending episodes out: the dispatcher's protocol, and the bounded window around it.

Invariant: at most as many episodes are out as the gate lets through; each ends as an `Ended`, or as a cancellation.
Being turned away by a full server (503 or 429 with Retry-After) costs no attempt: the episode has
not begun, so the same attempt is sent again after the time that the server asked for.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from gym.client import CallError, Peer
from gym.protocol.rollouts import Outcome
from gym.protocol.routes import CAPTURE, RUN, STATUS, rollout_prefix
from gym.rollouts.feed import Feed, Job
from gym.rollouts.flights import Flight, Stages
from gym.rollouts.gate import Gate
from gym.rollouts.ledger import Ledger
from gym.rollouts.model_calls import ModelCallFiles
from gym.rollouts.outcomes import Ended, call_failure, judge
from gym.rollouts.pace import Traffic, summed

BACKOFF_CAP = 30.0
"""Longest wait before a failed rollout is tried again, in seconds."""
ADMISSION_WAIT_CAP = 60.0
"""Longest wait before knocking again at a full server, in seconds."""
ADMISSION_PATIENCE = 21_600.0
"""How long one attempt knocks at a full server before that is its failure, in seconds: one episode's time in the shipped recipes."""

_STATUS_SECONDS = 5.0
_Said = TypeVar("_Said")
_RECORD_SECONDS = 30.0
"""How long a model server may take to hand out one episode's record."""


class Dispatcher(Protocol):
    """The way to the servers."""

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """POST `body` to the environment server's `/run`; return status and reply. Raises `gym.client.CallError`.

        Cancelling it must end the episode at the server.
        """
        ...

    async def traffic(self) -> Traffic | None:
        """What went to the model since its servers started, as far as they tell; None if none does."""
        ...

    async def stages(self, environments: Iterable[str]) -> Stages | None:
        """In which stages the episodes at these environment servers are; None where none of them tells."""
        ...

    async def model_calls(self, server: str, capture_key: str) -> bytes:
        """The raw record of an episode's model calls, at the model server that kept it. Raises `gym.client.CallError`."""
        ...

    async def retire_model_calls(self, server: str, capture_key: str) -> None:
        """The record is saved, and need not be kept at the model server. Raises `gym.client.CallError`."""
        ...


def backoff(tries: int) -> float:
    """Seconds to wait after the failed try number `tries` (from 1): 1, 2, 4, … up to the cap, jittered by up to a half."""
    return min(BACKOFF_CAP, 2.0 ** min(tries - 1, 10)) * (0.5 + random.random() / 2)


class Window:
    """Runs the jobs of a feed, so many at a time as the gate lets through."""

    def __init__(
        self,
        feed: Feed,
        dispatcher: Dispatcher,
        ledger: Ledger,
        gate: Gate,
        settle: Callable[[Job, Ended], None],
        model_calls: ModelCallFiles,
    ) -> None:
        """`settle` records an ended attempt; what it raises ends the window."""
        self._feed, self._dispatcher, self._ledger, self._settle = feed, dispatcher, ledger, settle
        self._model_calls = model_calls
        self._gate = gate
        self.flights: dict[str, Flight] = {}
        """What is out, by capture key; the oldest first."""
        self.traffic = Traffic()
        """What the environment servers have answered."""

    async def run(self) -> None:
        """Run until the feed is empty. Raises what `settle` raised; cancelling it cancels every episode that is out."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._gate.enter()
                    job = await self._feed.take()
                    if job is None:
                        return
                    self.flights[job.episode.capture_key] = Flight(time.monotonic(), job.environment)
                    group.create_task(self._one(job))
        except BaseExceptionGroup as errors:
            # One reason is enough to stop; the others are its echoes.
            raise errors.exceptions[0] from None

    async def _one(self, job: Job) -> None:
        try:
            ended = await self._send(job)
            try:
                await self._model_calls.save(self._dispatcher, ended)
            finally:  # what has ended is on file, also if we are stopped just now
                self._settle(job, ended)
        finally:
            del self.flights[job.episode.capture_key]
            self._feed.finish()
            self._gate.leave()

    async def _send(self, job: Job) -> Ended:
        give_up = time.monotonic() + ADMISSION_PATIENCE
        while True:
            began = time.monotonic()
            try:
                status, body = await self._dispatcher.run(job.environment, job.body)
            except CallError as error:
                if error.status == 429:
                    self.traffic.turned_away(time.monotonic(), error.retry_after)
                if error.status not in (429, 503) or error.retry_after is None or time.monotonic() > give_up:
                    return Ended(Outcome.FAILED, failure=call_failure(error))
                wait = min(max(error.retry_after, 0.1), ADMISSION_WAIT_CAP) * (1 + random.random() / 2)
            except Exception as error:  # a dispatcher's defect costs this rollout and is named in its row
                return Ended(Outcome.FAILED, failure=call_failure(error))
            else:
                return self._counted(judge(status, body, job.episode), time.monotonic() - began)
            self._ledger.waiting += 1
            try:
                await asyncio.sleep(wait)
            finally:
                self._ledger.waiting -= 1

    def _counted(self, ended: Ended, seconds: float) -> Ended:
        if ended.failure is None:
            self.traffic.calls += 1
            self.traffic.seconds += seconds
        elif ended.failure.http_status == 429:
            self.traffic.turned_away(time.monotonic(), None)
        return ended


class PeerDispatcher:
    """Dispatches to running servers: `peer(name)` gives the client of an environment server."""

    def __init__(self, peer: Callable[[str], Peer], timeouts: Mapping[str, float | None], models: Iterable[str] = ()) -> None:
        """`timeouts` bound one episode, in seconds, by environment server; one that is not there is bounded by its server alone.

        `models` are the model servers that tell of their traffic.
        """
        self._peer_of, self._timeouts = peer, timeouts
        self._models = sorted(set(models))
        self._told: dict[str, Traffic] = {}
        """What each model server said last."""
        self._peers: dict[str, Peer] = {}

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """See `Dispatcher.run`."""
        reply = await self._peer(environment).post(RUN, body, timeout=self._timeouts.get(environment))
        return reply.status, reply.body

    async def traffic(self) -> Traffic | None:
        """See `Dispatcher.traffic`. A server that does not answer just now counts with what it said last."""
        told = await asyncio.gather(*(self._said(name, _traffic_in) for name in self._models))
        self._told |= {name: traffic for name, traffic in zip(self._models, told, strict=True) if traffic is not None}
        return summed(self._told.values()) if self._told else None

    async def stages(self, environments: Iterable[str]) -> Stages | None:
        """See `Dispatcher.stages`."""
        asked = await asyncio.gather(*(self._said(name, _stages_in) for name in environments))
        told = [one for one in asked if one is not None]
        if not told:
            return None
        return Stages({key: stage for one in told for key, stage in one.of.items()}, sum(one.queued for one in told))

    async def _said(self, name: str, read: Callable[[Any], _Said]) -> _Said | None:
        """What `read` finds in the status of a server; None if it is not there just now, or is of another program, which tells nothing."""
        try:
            return read((await self._peer(name).get(STATUS, timeout=_STATUS_SECONDS)).json())
        except (CallError, ValueError, KeyError, TypeError, AttributeError):
            return None

    async def model_calls(self, server: str, capture_key: str) -> bytes:
        """See `Dispatcher.model_calls`."""
        return (await self._peer(server).get(CAPTURE, timeout=_RECORD_SECONDS, prefix=rollout_prefix(capture_key))).body

    async def retire_model_calls(self, server: str, capture_key: str) -> None:
        """See `Dispatcher.retire_model_calls`."""
        await self._peer(server).delete(CAPTURE, timeout=_RECORD_SECONDS, prefix=rollout_prefix(capture_key))

    def _peer(self, name: str) -> Peer:
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = self._peer_of(name)
        return peer


def _traffic_in(status: Any) -> Traffic:
    told = status["calls"]
    shut_until = time.monotonic() + wait if (wait := told.get("wait_seconds")) else 0.0
    return Traffic(int(told["calls"]), float(told["seconds"]), int(told["output_tokens"]), int(told.get("limited", 0)), shut_until)


def _stages_in(status: Any) -> Stages:
    return Stages({str(one["episode"]): str(one["stage"]) for one in status["episodes"]}, int(status["queued"]))
