"""Which containers lost a process to their memory limit, by the engine's own events.

Neither an exit code of 137 nor the container's state tells: a command that the kernel killed for its
memory leaves the container running, with `OOMKilled` false, and a runner inside may hide the code. The
engine's events do tell, and code in the container cannot forge them. Invariant: only containers that
were added are waited for, so that one without a limit costs nothing. What happened while the engine
did not answer is not known afterwards.
"""

import asyncio
from contextlib import suppress
from typing import Any, cast

import orjson

from gym.sandbox.ownership import MARK
from gym.sandbox.providers.docker.engine import Engine, EngineError

_OPEN_BOUND_S = 5.0
_LATE_S = 1.0
"""How long after a command's end the engine's word may come."""

_AGAIN_S = 1.0
_CLOSE_S = 2
"""Seconds within which a container's end follows from its lack of memory."""


class MemoryWatch:
    """Listens to one engine from the first container that is added until `aclose`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kills: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._ended: set[str] = set()
        self._changed = asyncio.Event()
        self._open = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def add(self, container: str) -> None:
        """Watch a container that has a memory limit. An engine that does not tell its events is no error: nothing is known then."""
        self._kills.setdefault(container, 0)
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._listen())
        with suppress(TimeoutError):
            async with asyncio.timeout(_OPEN_BOUND_S):
                await self._open.wait()

    def forget(self, container: str) -> None:
        """Watch a container no more."""
        self._kills.pop(container, None)
        self._last.pop(container, None)
        self._ended.discard(container)

    def kills(self, container: str) -> int:
        """How often the limit ended a process of the container."""
        return self._kills.get(container, 0)

    def ended(self, container: str) -> bool:
        """Whether the container itself ended with its memory."""
        return container in self._ended

    async def killed(self, container: str, before: int, *, probable: bool) -> bool:
        """Whether it happened again after there had been `before`. A `probable` one is waited for."""
        if probable and container in self._kills:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATE_S):
                    while self.kills(container) <= before and self._open.is_set():
                        self._changed.clear()
                        await self._changed.wait()
        return self.kills(container) > before

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    async def _listen(self) -> None:
        filters = {"type": ["container"], "event": ["oom", "die"], "label": [f"{MARK}=1"]}
        while True:
            with suppress(EngineError):
                async with self._engine.lines("/events", {"filters": filters}) as lines:
                    self._open.set()
                    async for line in lines:
                        self._take(line)
            self._open.clear()
            await asyncio.sleep(_AGAIN_S)

    def _take(self, line: bytes) -> None:
        try:
            event: Any = orjson.loads(line)
            name, time = str(event["Actor"]["Attributes"]["name"]), int(event["time"])
        except (ValueError, LookupError, TypeError):
            return
        if name not in self._kills:
            return
        if cast("dict[str, Any]", event).get("Action") == "oom":
            self._kills[name] += 1
            self._last[name] = time
        elif time - self._last.get(name, -_CLOSE_S - 1) <= _CLOSE_S:
            self._ended.add(name)
        self._changed.set()
