"""Sending episodes out: the dispatcher's protocol, and the bounded window around it.

Invariant: at most `concurrency` episodes are out; each ends as an `Ended`, or as a cancellation.
Being turned away by a full server (503 or 429 with Retry-After) costs no attempt: the episode has
not begun, so the same attempt is sent again after the time that the server asked for.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from gym.client import CallError, Peer
from gym.protocol.rollouts import Outcome
from gym.protocol.routes import CAPTURE, RUN, rollout_prefix
from gym.rollouts.feed import Feed, Job
from gym.rollouts.ledger import Ledger
from gym.rollouts.model_calls import ModelCallFiles
from gym.rollouts.outcomes import Ended, call_failure, judge

BACKOFF_CAP = 30.0
"""Longest wait before a failed rollout is tried again, in seconds."""
ADMISSION_WAIT_CAP = 60.0
"""Longest wait before knocking again at a full server, in seconds."""
ADMISSION_PATIENCE = 21_600.0
"""How long one attempt knocks at a full server before that is its failure, in seconds: one episode's time in the shipped recipes."""

_RECORD_SECONDS = 30.0
"""How long a model server may take to hand out one episode's record."""


class Dispatcher(Protocol):
    """The way to the servers."""

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """POST `body` to the environment server's `/run`; return status and reply. Raises `gym.client.CallError`.

        Cancelling it must end the episode at the server.
        """
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
    """Runs the jobs of a feed, so many at a time."""

    def __init__(
        self,
        feed: Feed,
        dispatcher: Dispatcher,
        ledger: Ledger,
        concurrency: int,
        settle: Callable[[Job, Ended], None],
        model_calls: ModelCallFiles,
    ) -> None:
        """`settle` records an ended attempt; what it raises ends the window."""
        self._feed, self._dispatcher, self._ledger, self._settle = feed, dispatcher, ledger, settle
        self._model_calls = model_calls
        self._room = asyncio.Semaphore(concurrency)

    async def run(self) -> None:
        """Run until the feed is empty. Raises what `settle` raised; cancelling it cancels every episode that is out."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._room.acquire()
                    job = await self._feed.take()
                    if job is None:
                        return
                    self._ledger.running += 1
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
            self._ledger.running -= 1
            self._feed.finish()
            self._room.release()

    async def _send(self, job: Job) -> Ended:
        give_up = time.monotonic() + ADMISSION_PATIENCE
        while True:
            try:
                status, body = await self._dispatcher.run(job.environment, job.body)
            except CallError as error:
                if error.status not in (429, 503) or error.retry_after is None or time.monotonic() > give_up:
                    return Ended(Outcome.FAILED, failure=call_failure(error))
                wait = min(max(error.retry_after, 0.1), ADMISSION_WAIT_CAP) * (1 + random.random() / 2)
            except Exception as error:  # a dispatcher's defect costs this rollout and is named in its row
                return Ended(Outcome.FAILED, failure=call_failure(error))
            else:
                return judge(status, body, job.episode)
            self._ledger.waiting += 1
            try:
                await asyncio.sleep(wait)
            finally:
                self._ledger.waiting -= 1


class PeerDispatcher:
    """Dispatches to running servers: `peer(name)` gives the client of an environment server."""

    def __init__(self, peer: Callable[[str], Peer], timeouts: Mapping[str, float | None]) -> None:
        """`timeouts` bound one episode, in seconds, by environment server; one that is not there is bounded by its server alone."""
        self._peer_of, self._timeouts = peer, timeouts
        self._peers: dict[str, Peer] = {}

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """See `Dispatcher.run`."""
        reply = await self._peer(environment).post(RUN, body, timeout=self._timeouts.get(environment))
        return reply.status, reply.body

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
