"""Handing out rollouts: first every line of the materialized file, then those to be tried again.

Invariant: a rollout is handed out once in the first pass, and again only after `retry`; at most
one of its attempts is out at a time. Tasks stay on disk; a waiting rollout costs 28 bytes.
"""

import asyncio
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym.protocol.rollouts import ENVIRONMENT_SERVER, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX
from gym.rollouts.outcomes import Episode
from gym.rollouts.source import INPUT_MARK


@dataclass(slots=True, frozen=True)
class Job:
    """One attempt to be made. `body` is the request to the environment server."""

    rollout: int
    """The line of the materialized file, from 0."""
    offset: int
    length: int
    environment: str
    episode: Episode
    body: bytes


class _Waiting:
    """Rollouts that wait for the same number of tries; first in, first out."""

    def __init__(self) -> None:
        self._rollouts, self._offsets, self._lengths, self._due = array("Q"), array("Q"), array("I"), array("d")
        self._head = 0

    def push(self, rollout: int, offset: int, length: int, due: float) -> None:
        self._rollouts.append(rollout)
        self._offsets.append(offset)
        self._lengths.append(length)
        self._due.append(due)

    def due(self) -> float | None:
        return self._due[self._head] if self._head < len(self._due) else None

    def pop(self) -> tuple[int, int, int]:
        head = self._head
        entry = self._rollouts[head], self._offsets[head], self._lengths[head]
        self._head += 1
        if self._head == len(self._due):
            self.__init__()
        return entry


class Feed:
    """The rollouts of one run, in the order in which they are to be dispatched."""

    def __init__(self, path: Path, reserve: Callable[[int, str], int], closed: bytearray | None = None) -> None:
        """`reserve(rollout, rollout_id)` gives the attempt number and makes it known before the dispatch.

        Rollouts that are 1 in `closed` are left out.
        """
        self._closed = closed
        self._file = path.open("rb")
        self._reserve = reserve
        self._rollout = self._offset = 0
        self._first_pass = True
        self._waiting: dict[int, _Waiting] = {}
        self._out = 0
        self._changed = asyncio.Event()

    async def take(self) -> Job | None:
        """The next attempt, as soon as one is due; None once nothing is left or out. One caller at a time."""
        while True:
            job = self._next_line() if self._first_pass else None
            if job is not None:
                return job
            self._changed.clear()
            dues = [(due, level) for level, queue in self._waiting.items() if (due := queue.due()) is not None]
            if not dues and not self._out:
                return None
            wait = None
            if dues:
                due, level = min(dues)
                wait = due - time.monotonic()
                if wait <= 0:
                    rollout, offset, length = self._waiting[level].pop()
                    return self._job(rollout, offset, length, os.pread(self._file.fileno(), length, offset))
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def retry(self, job: Job, tries: int, delay: float) -> None:
        """Hand the job's rollout out again, not before `delay` seconds."""
        self._waiting.setdefault(tries, _Waiting()).push(job.rollout, job.offset, job.length, time.monotonic() + delay)

    def finish(self) -> None:
        """A job that was taken has ended (after `retry`, if it is to be tried again)."""
        self._out -= 1
        self._changed.set()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _next_line(self) -> Job | None:
        line = self._file.readline()
        while self._closed is not None and line and self._closed[self._rollout]:
            self._rollout += 1
            self._offset += len(line)
            line = self._file.readline()
        if not line:
            self._first_pass = False
            return None
        job = self._job(self._rollout, self._offset, len(line), line)
        self._rollout += 1
        self._offset += len(line)
        return job

    def _job(self, rollout: int, offset: int, length: int, line: bytes) -> Job:
        mark = line.index(INPUT_MARK)
        head: dict[str, Any] = orjson.loads(line[:mark] + b"}")
        rollout_id: str = head[ROLLOUT_ID]
        attempt = self._reserve(rollout, rollout_id)
        self._out += 1
        episode = Episode(rollout_id, attempt, head[TASK_INDEX], head[ROLLOUT_INDEX], head[ENVIRONMENT_SERVER], head["task_id"])
        opening = orjson.dumps({"episode_id": {"rollout_id": rollout_id, "attempt": attempt}, "task": {"task_id": head["task_id"]}})
        # `opening` ends in "}}", the line in "}\n": the task's input goes between, as the bytes that they are.
        body = b"".join((opening[:-2], memoryview(line)[mark:-1], b"}"))
        return Job(rollout, offset, length, head[ENVIRONMENT_SERVER], episode, body)
