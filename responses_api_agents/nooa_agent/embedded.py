"""One activation of NOOA in the agent server: in a thread with an event loop of its own, so that Python of the policy that blocks
holds up nobody else. There is no protection: it has the server's files, processes and network.

Invariant: `end` returns True only when the thread has ended. A thread cannot be killed: one that does not heed its cancellation
leaves it open what it still does.
"""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

from gym.harness.adapter import Ending
from responses_api_agents.nooa_agent.runner.activation import Job, activate

_GRACE_SECONDS = 5.0


class EmbeddedRun:
    """One activation. `records` grows while it runs."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.begun = False
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._broke = ""

    async def run(self, job: Job, access: dict[str, Any], timeout: float) -> Ending | None:
        """Run it to its end, or to `timeout` seconds; None where it cannot be known that it has ended."""
        self.begun, began = True, time.monotonic()
        threading.Thread(target=self._work, args=(job, access), name="nooa", daemon=True).start()
        ended = await self._wait(timeout)
        if not ended and not await self.end():
            return None
        seconds = round(time.monotonic() - began, 3)
        return Ending(1 if self._broke else 0, seconds, self._broke, stopped=None if ended else "agent_timeout")

    async def end(self, seconds: float = _GRACE_SECONDS) -> bool:
        """Stop it; whether it has ended for certain."""
        self._stopped.set()
        with self._lock:
            if self._loop is not None and self._task is not None:
                with suppress(RuntimeError):  # it closed its loop in this moment
                    self._loop.call_soon_threadsafe(self._task.cancel)
        return not self.begun or await self._wait(seconds)

    async def _wait(self, seconds: float) -> bool:
        deadline, pause = time.monotonic() + seconds, 0.005
        while not self._over.is_set() and time.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        return self._over.is_set()

    def _work(self, job: Job, access: dict[str, Any]) -> None:
        try:
            asyncio.run(self._main(job, access))
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # of the agent's code: a SystemExit, say
            self._broke = f"{type(error).__name__}: {error}"
        finally:
            with self._lock:
                self._loop = self._task = None
            self._over.set()

    async def _main(self, job: Job, access: dict[str, Any]) -> None:
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if not self._stopped.is_set():
            await activate(job, access, self.records.append)
