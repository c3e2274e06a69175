"""The library at work in processes of its own, which are ended and replaced where they take too long or break."""

import asyncio
import contextlib
import sys
from pathlib import Path

import orjson

_WORKER = Path(__file__).with_name("worker.py")
_START_SECONDS = 120.0
_GRACE_SECONDS = 5.0
"""How much later than the worker's own alarm we end it."""


class LibraryFailed(Exception):
    """The library came to no result on this pair."""


class Library:
    """At most `workers` processes, each with one pair at a time."""

    def __init__(self, workers: int, seconds: int, python: str = sys.executable) -> None:
        self._seconds, self._python = seconds, python
        self._places = asyncio.Semaphore(workers)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()

    async def start(self) -> None:
        """Start the first process. Raises LibraryFailed if the library is not there."""
        self._idle.append(await self._worker())

    async def equal(self, expected: str, answer: str, *, boxed: bool) -> bool | None:
        """Whether they are equal; None if the expected answer is no mathematics to the library. Raises LibraryFailed."""
        async with self._places:
            worker = self._idle.pop() if self._idle else await self._worker()
            keep = False
            try:
                line = orjson.dumps({"expected": expected, "answer": answer, "boxed": boxed}, option=orjson.OPT_APPEND_NEWLINE)
                reply = await self._exchange(worker, line, self._seconds + _GRACE_SECONDS)
                keep = True
            finally:
                if keep:
                    self._idle.append(worker)
                else:
                    await self._end(worker)
        if "error" in reply:
            raise LibraryFailed(str(reply["error"]))
        return reply["equal"]

    async def stop(self) -> None:
        """End every process."""
        for worker in list(self._all):
            await self._end(worker)

    async def _worker(self) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            self._python, str(_WORKER), str(self._seconds), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._all.add(worker)
        try:
            await self._exchange(worker, b"", _START_SECONDS)
        except BaseException:
            await self._end(worker)
            raise
        return worker

    async def _exchange(self, worker: asyncio.subprocess.Process, line: bytes, seconds: float) -> dict[str, object]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                if line:
                    worker.stdin.write(line)
                    await worker.stdin.drain()
                reply = await worker.stdout.readline()
        except TimeoutError:
            raise LibraryFailed(f"the comparison took more than {seconds:g} s") from None
        except (OSError, ValueError) as error:
            raise LibraryFailed(f"the library's process cannot be talked to: {error}") from error
        if not reply:
            code = await worker.wait()
            why = f"took more than {self._seconds} s" if line and code < 0 else f"ended the library's process (exit code {code})"
            raise LibraryFailed(f"the comparison {why}" if line else f"the library's process did not start (exit code {code}); see its log")
        return orjson.loads(reply)

    async def _end(self, worker: asyncio.subprocess.Process) -> None:
        self._all.discard(worker)
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await asyncio.shield(worker.wait())
