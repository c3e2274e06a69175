"""What all four kinds of server share: their routes, their life and their ASGI application."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, ClassVar

from gym.config.schema import Kind, ServerConfig
from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.servers.auth import Credentials
from gym.servers.context import ServerContext
from gym.servers.http import Access, Answer, Call, Endpoint, Handler
from gym.servers.routing import Router

log = logging.getLogger("gym.servers")


@dataclass(frozen=True)
class RouteSpec:
    """One route of a server, before it is bound to credentials."""

    path: str
    handler: Handler
    access: Access
    method: str = "POST"
    under_rollout: bool = False
    """Also offered below `/ng-rollout/<capture key>[/training-token-capture]`."""
    leaves_with_client: bool = False
    """Cancelled when the client goes away."""
    own_task: bool = False
    """The server may cancel the handler's task, which therefore is never the caller's."""
    logged: bool = True
    broken: str = ""
    """The failure kind of an unexpected exception in the handler; "" stands for `<instance>:internal_error`."""
    data: bool = False
    """Code in a sandbox may call it, on sockets of its own; where it is `under_rollout`, with the token of that rollout."""

    def bind(self, credentials: Credentials, instance: str) -> Endpoint:
        """The endpoint of this route under these credentials."""
        return Endpoint(
            self.path,
            self.handler,
            credentials,
            self.access,
            self.method,
            self.under_rollout,
            self.leaves_with_client,
            self.own_task,
            self.logged,
            self.broken or f"{instance}:internal_error",
            instance,
            self.data,
        )


class Server:
    """A server of any kind. Subclass one of the four bases, not this."""

    kind: ClassVar[Kind]
    config: ServerConfig

    def __init__(self, config: ServerConfig, context: ServerContext) -> None:
        self.config = config
        self.context = context
        self.draining = False

    def route_specs(self) -> list[RouteSpec]:
        """The routes of this server beyond the common ones."""
        return []

    async def start(self) -> None:
        """Run once before the first request; an exception stops the whole start with its message."""

    async def wind_up(self) -> None:
        """Run at the end, while requests are still answered: bring what is in flight to an answer. Must be bounded."""

    async def stop(self) -> None:
        """Run once after the last request; must be bounded."""

    def status(self) -> dict[str, Any]:
        """What `gym env status` shows of this server."""
        return {}

    def background(self) -> list[Any]:
        """Coroutines that run for as long as the server does."""
        return []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the server, keep its background work going, stop it."""
        await self.start()
        tasks = [asyncio.ensure_future(work) for work in self.background()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("background work of %s had ended: %s: %s", self.context.instance, type(ended).__name__, ended)
            try:
                await self.stop()
            finally:
                self.context.leases.close()

    def app(self) -> Router:
        """The server as an ASGI application; whoever runs it enters `running()` around it."""
        return Router(spec.bind(self.context.credentials, self.context.instance) for spec in (*self._common(), *self.route_specs()))

    def _common(self) -> list[RouteSpec]:
        return [
            RouteSpec(routes.HEALTH, self._healthz, Access.OPEN, "GET", logged=False, data=True),
            RouteSpec(routes.READY, self._readyz, Access.OPEN, "GET", logged=False),
            RouteSpec(routes.STATUS, self._status, Access.CONTROL, "GET", logged=False),
            RouteSpec(routes.DRAIN, self._drain, Access.CONTROL, logged=False),
        ]

    async def _healthz(self, call: Call) -> dict[str, Any]:
        return {"status": "ok"}

    async def _readyz(self, call: Call) -> dict[str, Any]:
        return {"status": "ok", "instance": self.context.instance, "run_id": self.context.run_id}

    async def _status(self, call: Call) -> dict[str, Any]:
        return {"instance": self.context.instance, "draining": self.draining, **self.status()}

    async def _drain(self, call: Call) -> Answer:
        """Admit nothing new; what runs goes on. The answer tells how much that is."""
        self.draining = True
        return Answer({"running": self.running_count()})

    def running_count(self) -> int:
        """How many pieces of work a drain must wait for."""
        return 0

    def refuse_while_draining(self) -> None:
        """Raise ContractError (503) once the server is stopping."""
        if self.draining:
            raise ContractError(503, f"{self.context.instance} is stopping", kind="shutdown", terminal=False, retry_after=5)
