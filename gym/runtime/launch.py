"""From a plan to running servers, and back to nothing.

Starting is a transaction: every socket is opened before anything runs, and if one server cannot
start, all that was started is stopped again and the error names the culprit. Stopping goes
backwards: environment servers first, while what they must clean up with still answers, then all
others at once; then whatever containers still carry this run's label go.

`isolation: process` gives each instance a process; `colocated` puts all into this one, calling
each other without a network, except those that need an environment of their own.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from gym.client import CallError, Peer
from gym.config.errors import UserError
from gym.config.plan import Instance, Plan
from gym.config.schema import AgentConfig, Auth, Settings
from gym.protocol import routes
from gym.runtime.environments import environment_python
from gym.runtime.folder import RunFolder
from gym.runtime.listen import answering, open_socket, url_of
from gym.runtime.loading import InstanceSpec, LoadError, make_server
from gym.runtime.logs import tail
from gym.runtime.processes import ServerProcess
from gym.servers.auth import Credentials
from gym.servers.base import Server
from gym.servers.context import PeerInfo
from gym.transports import InProcessTransport

log = logging.getLogger("gym.runtime")

Isolation = Literal["process", "colocated"]
Say = Callable[[str], None]

_REMIND_SECONDS = 5.0


@dataclass
class Running:
    """A run that is up. `say` gets lines for people."""

    plan: Plan
    folder: RunFolder
    credentials: Credentials
    peers: Mapping[str, PeerInfo]
    transport: InProcessTransport
    say: Say
    processes: dict[str, ServerProcess] = field(default_factory=dict[str, ServerProcess])
    servers: dict[str, Server] = field(default_factory=dict[str, Server])
    """The colocated ones."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to cut a drain short."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.run_id

    def peer(self, name: str) -> Peer:
        """A client for one instance."""
        info = self.peers[name]
        return Peer(name, info.url, self.transport, headers={**self.credentials.headers(), **info.headers})

    async def status(self) -> dict[str, Any]:
        """What each instance says of itself, by name; an instance that does not answer says so."""
        names = list(self.peers)
        replies = await asyncio.gather(*(self._status_of(name) for name in names))
        return dict(zip(names, replies, strict=True))

    async def _status_of(self, name: str) -> dict[str, Any]:
        info = self.peers[name]
        base: dict[str, Any] = {"kind": info.kind, "implementation": info.implementation, "url": info.url}
        process = self.processes.get(name)
        if process is not None:
            base["pid"] = process.pid
        try:
            reply = await self.peer(name).get(routes.STATUS, timeout=2)
            return {**base, "health": "ok", **reply.json()}
        except (CallError, ValueError) as error:
            return {**base, "health": "unreachable", "error": str(error)}

    async def drain(self, seconds: float) -> None:
        """Admit no new episodes and give the running ones up to `seconds` to end, or until `hurry` is set."""
        names = [name for name, info in self.peers.items() if info.kind == "environment_servers" and name in self.processes | self.servers]
        deadline = asyncio.get_running_loop().time() + seconds
        said = -1
        while names and not self.hurry.is_set():
            running = sum(await asyncio.gather(*(self._drain_one(name) for name in names)))
            left = deadline - asyncio.get_running_loop().time()
            if not running or left <= 0:
                return
            if running != said:
                self.say(f"{running} episode(s) still running; up to {left:.0f} s for them to end (Ctrl-C to cancel them now)")
                said = running
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.hurry.wait(), min(0.1, left))

    async def _drain_one(self, name: str) -> int:
        try:
            reply = await self.peer(name).post("/drain", {}, timeout=2)
            return int(reply.json()["running"])
        except (CallError, ValueError, KeyError):
            return 0

    def kill(self) -> None:
        """End every process at once."""
        for process in self.processes.values():
            process.kill()


@contextlib.asynccontextmanager
async def launch(
    plan: Plan, isolation: Isolation, *, say: Say = lambda line: None, log_dir: Path | None = None
) -> AsyncIterator[Running]:
    """Start everything in `plan`, and stop it all at the end. Raises UserError if something cannot start."""
    credentials = _credentials(plan.settings)
    if credentials.token is None:
        say("authentication is off: any program on this machine can drive these servers")
    folder = RunFolder(log_dir=log_dir or plan.settings.log_dir)
    running = Running(plan, folder, credentials, {}, InProcessTransport(), say)
    clean = False
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(running.transport.aclose)
            stack.push_async_callback(_sweep_sandboxes, running)
            await _start(running, isolation, stack)
            yield running
        clean = not any(process.crashed for process in running.processes.values())
    finally:
        folder.remove(keep_logs=not clean)
        if not clean and running.processes:
            say(f"logs are kept in {folder.logs}")


def _credentials(settings: Settings) -> Credentials:
    secret = secrets.token_hex(32)
    if settings.auth == "off":
        return Credentials(None, secret)
    assert isinstance(settings.auth, Auth)
    if settings.auth.token_file is None:
        return Credentials(secrets.token_urlsafe(32), secret)
    try:
        token = settings.auth.token_file.read_text().strip()
    except OSError as error:
        raise UserError(f"auth.token_file: cannot read {settings.auth.token_file}: {error.strerror}") from error
    if len(token) < 16 or not token.isascii() or any(c.isspace() for c in token):
        raise UserError(f"auth.token_file: {settings.auth.token_file} must hold one token of at least 16 visible ASCII characters")
    return Credentials(token, secret)


async def _start(running: Running, isolation: Isolation, stack: contextlib.AsyncExitStack) -> None:
    plan = running.plan
    local = [instance for instance in plan.instances.values() if not instance.remote]
    apart = {i.name for i in local if isolation == "process" or i.requirements is not None}
    # An instance in this process needs a real address only if somebody outside of it calls it.
    published = isolation == "process" or bool(apart) or bool(plan.sandbox_providers)
    listeners: dict[str, socket.socket] = {}
    with contextlib.ExitStack() as opened:
        for instance in local:
            if published or instance.config.port:
                host = instance.config.host or default_host(plan.settings)
                listeners[instance.name] = opened.enter_context(open_socket(host, instance.config.port or 0, instance.name))
        opened.pop_all()
    stack.callback(_close_all, listeners)
    running.peers = {i.name: _peer_info(i, plan.settings, listeners.get(i.name)) for i in plan.instances.values()}
    pythons = {i.name: await environment_python(i, plan.settings, running.say) for i in local if i.name in apart}
    for instance in local:
        if instance.name in apart:
            spec_path = running.folder.write_private(f"{instance.name}.json", _spec(running, instance).to_json())
            running.processes[instance.name] = ServerProcess(
                instance.name,
                spec_path,
                listeners[instance.name],
                running.folder.log_path(instance.name),
                python=pythons[instance.name],
                env=_child_environment(),
                on_event=running.say,
            )
    others = contextlib.AsyncExitStack()
    environments = contextlib.AsyncExitStack()
    stack.push_async_callback(_stop_processes, running, environment_servers=False)
    await stack.enter_async_context(others)
    stack.push_async_callback(_stop_processes, running, environment_servers=True)
    await stack.enter_async_context(environments)
    stack.push_async_callback(running.drain, plan.settings.drain_timeout_seconds)
    await asyncio.gather(*(process.start() for process in running.processes.values()))
    # Environment servers last: on start they may have sessions of a dead predecessor to close.
    for instance in sorted(local, key=lambda i: i.kind == "environment_servers"):
        if instance.name not in apart:
            where = environments if instance.kind == "environment_servers" else others
            await _colocate(running, instance, listeners.get(instance.name), where)
    await _wait_ready(running)


def _spec(running: Running, instance: Instance) -> InstanceSpec:
    settings = running.plan.settings
    return InstanceSpec(
        instance=instance.name,
        kind=instance.kind,
        implementation=instance.implementation,
        directory=str(instance.directory),
        config=dict(instance.raw),
        run_id=running.run_id,
        url=running.peers[instance.name].url,
        state_dir=str(running.folder.path),
        token=running.credentials.token,
        secret=running.credentials.secret,
        peers=dict(running.peers),
        sandbox_providers={name: dict(block) for name, block in running.plan.sandbox_providers.items()},
        policy={
            "policy_base_url": settings.policy_base_url,
            "policy_api_key": settings.policy_api_key,
            "policy_model_name": settings.policy_model_name,
        },
    )


async def _colocate(running: Running, instance: Instance, listener: socket.socket | None, stack: contextlib.AsyncExitStack) -> None:
    try:
        server = make_server(_spec(running, instance), running.transport)
        await stack.enter_async_context(server.running())
    except LoadError as error:
        raise UserError(str(error)) from error
    app = server.app()
    running.servers[instance.name] = server
    running.transport.add(running.peers[instance.name].url.removeprefix("http://"), app)
    if listener is not None:
        await stack.enter_async_context(answering(app, listener))


async def _wait_ready(running: Running) -> None:
    pending = dict(running.processes)
    if not pending:
        return
    limit = running.plan.settings.start_timeout_seconds
    deadline = asyncio.get_running_loop().time() + limit
    checks = {asyncio.ensure_future(_ready(running, process)): name for name, process in pending.items()}
    try:
        while checks:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                names = ", ".join(sorted(checks.values()))
                raise UserError(f"not ready within start_timeout_seconds ({limit:g} s): {names}; logs: {running.folder.logs}")
            done, _ = await asyncio.wait(checks, timeout=min(_REMIND_SECONDS, left), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                running.say(f"waiting for {', '.join(sorted(checks.values()))}")
            for task in done:
                running.processes[checks.pop(task)].ready()
                task.result()
    finally:
        for task in checks:
            task.cancel()


async def _ready(running: Running, process: ServerProcess) -> None:
    """Return once the server has answered with its own name and this run's id. Raises UserError if it dies first."""
    died = asyncio.ensure_future(process.died.wait())
    answer = asyncio.ensure_future(running.peer(process.instance).get(routes.READY, timeout=None))
    try:
        await asyncio.wait((died, answer), return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            lines = "".join(f"\n    {line}" for line in tail(process.log_path))
            raise UserError(f"server {process.instance} ended while starting (exit {process.returncode}); log: {process.log_path}{lines}")
        said = answer.result().json()
    except CallError as error:
        raise UserError(f"server {process.instance} does not get ready: {error.message}; log: {process.log_path}") from error
    finally:
        died.cancel()
        answer.cancel()
    if (said.get("instance"), said.get("run_id")) != (process.instance, running.run_id):
        raise UserError(f"another program answers at {running.peers[process.instance].url}, in place of {process.instance}: {orjson.dumps(said)[:200]!r}")


async def _stop_processes(running: Running, *, environment_servers: bool) -> None:
    chosen = [p for name, p in running.processes.items() if (running.peers[name].kind == "environment_servers") == environment_servers]
    grace = max([_stop_grace(running.plan, name) for name in running.processes], default=30.0)
    await asyncio.gather(*(process.stop(grace) for process in chosen))


def _stop_grace(plan: Plan, name: str) -> float:
    """Seconds that an instance may take to end: its own cleanup bounds, plus a margin."""
    cleanup = getattr(plan.instances[name].config, "cleanup_timeout_seconds", None)
    return 3 * float(cleanup) + 10 if cleanup is not None else 150.0


async def _sweep_sandboxes(running: Running) -> None:
    """Remove what a server that was killed could not: every sandbox that still carries this run's label."""
    if not running.plan.sandbox_providers:
        return
    from gym.sandbox.registry import provider_from_block

    for name, block in running.plan.sandbox_providers.items():
        try:
            provider = provider_from_block(name, block)
            removed = await provider.sweep(run_id=running.run_id)
            await provider.aclose()
        except Exception as error:
            running.say(f"cannot look for left-over sandboxes of provider {name}: {error}")
        else:
            if removed:
                running.say(f"removed {len(removed)} left-over sandbox(es) of provider {name}")


def _close_all(listeners: Mapping[str, socket.socket]) -> None:
    for listener in listeners.values():
        listener.close()


def default_host(settings: Settings) -> str:
    """The address that instances listen on unless they say otherwise."""
    if not settings.use_absolute_ip:
        return settings.default_host
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # picks the outgoing interface; nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostbyname(socket.gethostname())


def _peer_info(instance: Instance, settings: Settings, listener: socket.socket | None) -> PeerInfo:
    config = instance.config
    if config.url is not None:
        url = config.url.rstrip("/")
    elif listener is not None:
        url = url_of(listener)
    else:
        url = f"http://{instance.name}.in-process"
    capture = settings.token_id_capture
    captured = isinstance(config, AgentConfig) and capture.enabled and (capture.all_agents or config.token_id_capture)
    return PeerInfo(instance.name, instance.kind, instance.implementation, url, dict(config.headers), captured)


def _child_environment() -> dict[str, str]:
    """The environment of a server process: ours, with this very `gym` importable in any interpreter."""
    import gym

    root = str(Path(gym.__file__).parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}
