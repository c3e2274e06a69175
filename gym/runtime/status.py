"""What is running, for people and for the head server's `/status`."""

import asyncio
from typing import Any

from gym.client import CallError
from gym.protocol import routes
from gym.runtime.prepare import Running

_SECONDS = 2.0


async def status_of(running: Running) -> dict[str, Any]:
    """What each instance says of itself, by name; an instance that does not answer says so."""
    names = list(running.peers)
    replies = await asyncio.gather(*(_instance(running, name) for name in names))
    return dict(zip(names, replies, strict=True))


async def _instance(running: Running, name: str) -> dict[str, Any]:
    info = running.peers[name]
    base: dict[str, Any] = {"kind": info.kind, "implementation": info.implementation, "url": info.url, "published": dict(info.published)}
    if name in running.processes:
        base["pid"] = running.processes[name].pid
    try:
        reply = await running.peer(name).get(routes.STATUS, timeout=_SECONDS)
        return {**base, "health": "ok", **reply.json()}
    except (CallError, ValueError) as error:
        if info.remote and isinstance(error, CallError) and error.status is not None:
            return {**base, "health": "ok"}  # it answers; a server of another program need not have this route
        return {**base, "health": "unreachable", "error": str(error)}
