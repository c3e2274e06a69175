"""One server process, seen from the parent: start it, notice its death, start it again, end it.

The parent keeps the listening sockets, so a restarted server answers at the same address and calls
made in between wait in the sockets' queues. Restarts are bounded; a server that dies again and
again is given up, and its sockets are closed so that callers are refused at once.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gym.runtime.logs import tail
from gym.runtime.spawning import Child, fork, spawn

log = logging.getLogger("gym.runtime")

MAX_RESTARTS = 3
_STEADY_SECONDS = 600.0
"""A server that ran for so long before it died starts its count of restarts anew."""
_GRACE_SECONDS = 30.0
"""How long a server that was asked to end may take; releasing sandboxes has its own bounds inside."""


class ServerProcess:
    """One instance in a process of its own. `on_event` gets a line for people about each death.

    Of `listeners` the first is for all routes, the others are for data routes alone.
    """

    def __init__(
        self,
        instance: str,
        spec_path: Path,
        listeners: Sequence[socket.socket],
        log_path: Path,
        *,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        on_event: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.instance = instance
        self.log_path = log_path
        self.crashed = False
        self._spec_path = spec_path
        self._listeners = listeners
        self._python = python
        self._env = env
        self._on_event = on_event
        self._child: Child | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False
        self.died = asyncio.Event()
        """Set when the process has ended without being asked to, before it was first ready."""
        self._was_ready = False

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    @property
    def returncode(self) -> int | None:
        """How the last process ended."""
        return self._child.returncode if self._child else None

    @property
    def own_python(self) -> bool:
        """Whether the server runs in an interpreter that is not ours."""
        return self._python != sys.executable

    def fork(self) -> None:
        """Start the process now, by forking this one; see `spawning.fork` for when that may be done."""
        self._child = fork(self._spec_path, self._descriptors(), self.log_path)

    def start(self) -> None:
        """Start the process if it was not forked already, and watch it from now on; needs a running loop."""
        if self._child is None:
            self._spawn()
        self._watcher = asyncio.ensure_future(self._watch())

    def ready(self) -> None:
        """The server has answered: from now on a death is met with a restart."""
        self._was_ready = True

    def _spawn(self) -> None:
        self._child = spawn(self._python, self._spec_path, self._descriptors(), self.log_path, self._env)

    def _descriptors(self) -> list[int]:
        return [listener.fileno() for listener in self._listeners]

    def _close_sockets(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def _watch(self) -> None:
        restarts = 0
        while True:
            assert self._child is not None
            begun = time.monotonic()
            code = await self._child.wait()
            if time.monotonic() - begun > _STEADY_SECONDS:
                restarts = 0
            self._kill_group()  # whatever it started and left behind
            if self._stopping:
                return
            self.crashed = True
            if not self._was_ready:
                self.died.set()
                return
            last = "".join(f"\n    {line}" for line in tail(self.log_path, 5))
            if restarts >= MAX_RESTARTS:
                self._on_event(
                    f"server {self.instance} died ({_how(code)}) {restarts + 1} times and is given up; log: {self.log_path}{last}"
                )
                self._close_sockets()
                return
            self._on_event(f"server {self.instance} died ({_how(code)}) and is started again; log: {self.log_path}{last}")
            await asyncio.sleep(0.2 * 4**restarts)
            restarts += 1
            if not self._stopping:
                self._spawn()

    def terminate(self) -> None:
        """Ask the process to end."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    async def stop(self, grace_seconds: float = _GRACE_SECONDS) -> None:
        """End the process: SIGTERM, up to `grace_seconds` (s), SIGKILL to its group. Returns when it is gone."""
        self.terminate()
        if self._child is not None and self._child.returncode is None:
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._gone()
            except TimeoutError:
                self._on_event(f"server {self.instance} did not end within {grace_seconds:g} s and is killed; log: {self.log_path}")
                self._kill_group()
                await self._gone()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        self._close_sockets()

    async def _gone(self) -> None:
        """Wait until the process has ended: by the watcher that reaps it, or without one if it was never watched."""
        if self._watcher is not None:
            await asyncio.wait((self._watcher,))
        elif self._child is not None:
            await self._child.wait()

    def kill(self) -> None:
        """End the process and its group at once."""
        self._stopping = True
        self._kill_group()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.signal(number)

    def _kill_group(self) -> None:
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._signal(signal.SIGKILL)  # it has no group of its own yet, or is gone
        except PermissionError:
            log.warning("cannot end the process group of %s", self.instance)


def _how(code: int) -> str:
    """How a process ended, for people."""
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit {code}"
