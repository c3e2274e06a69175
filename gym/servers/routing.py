"""Which endpoint answers a request: exact paths, some of them also below a rollout prefix.

All our routes are fixed strings, so a dictionary finds them. Whatever is not found gets the same
error body as every other refusal. Invariant: in the view for sandboxes (`data`) a control route is
not refused but absent, and the run's own token opens nothing.
"""

import re
from collections.abc import Iterable

from gym.protocol.errors import ContractError
from gym.protocol.routes import ROLLOUT_PREFIX, TOKEN_CAPTURE
from gym.servers.http import Answer, Endpoint, Receive, Send, respond
from gym.transports import Message

_BELOW_ROLLOUT = re.compile(rf"{ROLLOUT_PREFIX}/(?P<key>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<capture>/{TOKEN_CAPTURE})?(?P<path>/.*)")


class Router:
    """An ASGI application made of endpoints."""

    def __init__(self, endpoints: Iterable[Endpoint], *, only_below_rollout: bool = False) -> None:
        """With `only_below_rollout` what can stand below a rollout stands nowhere else."""
        self._endpoints = tuple(endpoints)
        self._plain = _by_path(e for e in self._endpoints if not (only_below_rollout and e.under_rollout))
        self._below = _by_path(e for e in self._endpoints if e.under_rollout)

    def data(self) -> "Router":
        """What of this code in a sandbox may call."""
        return Router((e.for_sandboxes() for e in self._endpoints if e.data), only_below_rollout=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; anything but HTTP is closed at once."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1003})
            return
        path: str = scope["path"]
        methods = self._plain.get(path)
        if methods is None:
            below = _BELOW_ROLLOUT.fullmatch(path)
            if below is not None:
                methods = self._below.get(below["path"])
                scope["capture_key"] = below["key"]
                scope["token_capture"] = below["capture"] is not None
        if not methods:
            await self._refuse(send, ContractError(404, f"there is no route {path}"))
            return
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            await self._refuse(send, ContractError(405, f"{path} takes {' or '.join(sorted(methods))}, not {scope['method']}"))
            return
        await endpoint(scope, receive, send)

    async def _refuse(self, send: Send, error: ContractError) -> None:
        await respond(send, Answer(error.body(), error.status))


def _by_path(endpoints: Iterable[Endpoint]) -> dict[str, dict[str, Endpoint]]:
    """Path -> method -> endpoint."""
    found: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return found
