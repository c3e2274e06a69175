"""The first half of a start: everything that can fail before anything runs.

Opens every listening socket, makes the run's folder and networks, builds Python environments, and
writes down what each server process needs. Nothing is running afterwards unless `fork_servers` is called; and
whatever fails here is undone here.
"""

import asyncio
import itertools
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gym.client import Peer
from gym.config.errors import UserError
from gym.config.plan import Instance, Plan
from gym.config.schema import AgentConfig, Auth, Settings
from gym.runtime.environments import cache_root, environment_python
from gym.runtime.folder import RunFolder
from gym.runtime.listen import open_socket, url_of
from gym.runtime.loading import InstanceSpec
from gym.runtime.processes import ServerProcess
from gym.runtime.publishing import Published, publish, withdraw
from gym.runtime.spawning import can_fork, preload
from gym.servers.auth import Credentials
from gym.servers.base import Server
from gym.servers.context import PeerInfo
from gym.transports import InProcessTransport

POLICY = {"policy_base_url", "policy_api_key", "policy_model_name"}
"""What only model servers are told: nobody else needs the key."""

Isolation = Literal["process", "colocated"]
Say = Callable[[str], None]


@dataclass
class Running:
    """A run: prepared, then up, then gone. `say` gets lines for people."""

    plan: Plan
    folder: RunFolder
    credentials: Credentials
    say: Say
    peers: Mapping[str, PeerInfo] = field(default_factory=dict[str, PeerInfo])
    listeners: dict[str, socket.socket] = field(default_factory=dict[str, socket.socket])
    """The sockets with all routes, for our own processes."""
    published: Published = field(default_factory=Published)
    """The sockets with data routes alone, for code in sandboxes."""
    processes: dict[str, ServerProcess] = field(default_factory=dict[str, ServerProcess])
    servers: dict[str, Server] = field(default_factory=dict[str, Server])
    """The colocated ones, once they are up."""
    transport: InProcessTransport = field(default_factory=InProcessTransport)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to cut a drain short."""
    ended: bool = False
    """Stopped in good order, with nothing left but what is to be kept."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.run_id

    def peer(self, name: str) -> Peer:
        """A client for one instance."""
        info = self.peers[name]
        return Peer(name, info.url, self.transport, headers=info.call_headers(self.credentials))

    def spec(self, instance: Instance) -> InstanceSpec:
        """All that an instance needs to run in whatever process."""
        settings = self.plan.settings
        return InstanceSpec(
            instance=instance.name,
            kind=instance.kind,
            implementation=instance.implementation,
            directory=str(instance.directory),
            config=dict(instance.raw),
            run_id=self.run_id,
            url=self.peers[instance.name].url,
            state_dir=str(self.folder.path),
            token=self.credentials.token,
            secret=self.credentials.secret,
            peers=dict(self.peers),
            sandbox_providers={name: dict(block) for name, block in self.plan.sandbox_providers.items()},
            unreachable=dict(self.published.unreachable),
            keep_captures=settings.observability_enabled,
            cache_dir=str(cache_root(settings)),
            policy={} if instance.kind != "responses_api_models" else settings.model_dump(include=POLICY),
        )

    def fork_servers(self) -> None:
        """Start the server processes by forking this one, where that can be done; the others are started later."""
        if self.processes and can_fork():
            preload()
            for process in self.processes.values():
                if not process.own_python:
                    process.fork()

    def kill(self) -> None:
        """End every process at once."""
        for process in self.processes.values():
            process.kill()

    def abandon(self) -> None:
        """Leave nothing behind, whatever had been reached; does nothing after an orderly stop. Not to be called in an event loop."""
        if self.ended:
            return
        self.kill()
        self.close_sockets()
        withdraw(self.plan.sandbox_providers, self.folder)
        self.folder.remove(keep_logs=False)

    def sockets(self, name: str) -> list[socket.socket]:
        """The listening sockets of an instance: the one with all routes, then those with data routes."""
        return [self.listeners[name], *self.published.sockets.get(name, [])]

    def close_sockets(self) -> None:
        """Close every listening socket."""
        for listener in (*self.listeners.values(), *itertools.chain(*self.published.sockets.values())):
            listener.close()


def prepare(plan: Plan, isolation: Isolation, *, shared: bool, say: Say = lambda line: None, log_dir: Path | None = None) -> Running:
    """Everything for a run of `plan` but the running. Raises UserError, and then nothing is left.

    `shared` is whether other processes than the run's own will call its servers.
    """
    credentials = _credentials(plan.settings)
    if credentials.token is None:
        say("authentication is off: any program on this machine can drive these servers")
    running = Running(plan, RunFolder(log_dir=log_dir or plan.settings.log_dir), credentials, say)
    try:
        _prepare(running, isolation, shared)
    except BaseException:
        running.abandon()
        raise
    return running


def _prepare(running: Running, isolation: Isolation, shared: bool) -> None:
    plan = running.plan
    local = [instance for instance in plan.instances.values() if not instance.remote]
    apart = [i for i in local if isolation == "process" or i.requirements is not None]
    # An instance in this process needs a real address only if another process calls it.
    for instance in local:
        if shared or apart or instance.config.port:
            host = instance.config.host or default_host(plan.settings)
            running.listeners[instance.name] = open_socket(host, instance.config.port or 0, instance.name)
    publish(running.published, local, plan.sandbox_providers, running.folder, default_host(plan.settings))
    running.peers = {i.name: _peer_info(running, i) for i in plan.instances.values()}
    for instance in apart:
        running.processes[instance.name] = ServerProcess(
            instance.name,
            running.folder.write_private(f"{instance.name}.json", running.spec(instance).to_json()),
            running.sockets(instance.name),
            running.folder.log_path(instance.name),
            python=environment_python(instance, plan.settings, running.say),
            env=_child_environment(),
            on_event=running.say,
        )


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


def _peer_info(running: Running, instance: Instance) -> PeerInfo:
    config, listener = instance.config, running.listeners.get(instance.name)
    if config.url is not None:
        url = config.url.rstrip("/")
    elif listener is not None:
        url = url_of(listener)
    else:
        url = f"http://{instance.name}.in-process"
    capture = running.plan.settings.token_id_capture
    captured = isinstance(config, AgentConfig) and capture.enabled and (capture.all_agents or config.token_id_capture)
    model = config.model_server.name if isinstance(config, AgentConfig) and config.model_server is not None else None
    return PeerInfo(
        instance.name,
        instance.kind,
        instance.implementation,
        url,
        headers=dict(config.headers),
        token_capture=captured,
        model_server=model,
        remote=instance.remote,
        published=running.published.urls.get(instance.name, {}),
    )


def _child_environment() -> dict[str, str]:
    """The environment of a server process: ours, with this very `gym` importable in any interpreter."""
    import gym

    root = str(Path(gym.__file__).parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}
