"""What a server knows about the run it is part of: its peers, credentials and places to write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gym.client import Peer, Transport
from gym.config.schema import ServerRef
from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId
from gym.protocol.routes import EPISODE_HEADER
from gym.sandbox.leases import LeaseBook, LeaseFolder
from gym.servers.auth import Credentials


@dataclass(frozen=True)
class PeerInfo:
    """One instance of the run as others see it. `url` is the address for our own processes, control routes included."""

    name: str
    kind: str
    implementation: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    token_capture: bool = False
    """An agent whose model calls are recorded with token ids."""
    model_server: str | None = None
    """The instance that an agent calls its model at."""
    remote: bool = False
    """Runs elsewhere, under a token of its own."""
    published: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sandbox provider block -> the base URL at which its sandboxes reach the data routes."""

    def call_headers(self, credentials: Credentials) -> dict[str, str]:
        """What goes with every call to it: what its configuration says; our own token only if it is of this run."""
        own = {} if self.remote else credentials.headers()
        return {**own, **{name.lower(): value for name, value in self.headers.items()}}


def for_episode(episode: EpisodeId | None) -> dict[str, str]:
    """The header that says for which episode a call is made."""
    return {} if episode is None else {EPISODE_HEADER: episode.capture_key}


@dataclass(frozen=True)
class ServerContext:
    """Handed to every server when it is made."""

    instance: str
    run_id: str
    url: str
    """The instance's own base URL."""
    credentials: Credentials
    peers: Mapping[str, PeerInfo]
    transport: Transport
    state_dir: Path
    """A folder of this run for journals and spools; the same for every instance."""
    sandbox_providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    unreachable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Provider block -> why its sandboxes have no way to the servers of this run."""
    keep_captures: bool = False
    """Records of model calls are left where they are, for whoever collects the rollouts (`observability_enabled`)."""
    cache_dir: Path | None = None
    """Where what is built once is kept beyond the run; None keeps nothing."""

    @cached_property
    def leases(self) -> LeaseBook:
        """Where this instance writes down the sandboxes that it asks for: `OwnedSandbox.start(..., leases=context.leases.at(block))`."""
        return LeaseBook(LeaseFolder(self.state_dir).book_path(self.instance))

    def info(self, ref: ServerRef | str) -> PeerInfo:
        """The entry of the instance that `ref` names. Raises KeyError if the run has none."""
        return self.peers[ref if isinstance(ref, str) else ref.name]

    def published_url(self, target: ServerRef | str, block: str) -> str:
        """Where code in a sandbox of provider `block` reaches an instance: the base URL of its data routes.

        `target` is a reference, an instance's name, or a URL of one of ours, as grants hold them; of a URL the path is kept.
        Raises ContractError (422, terminal) where there is no way.
        """
        path = ""
        if isinstance(target, str) and "://" in target:
            info = next((i for i in self.peers.values() if target == i.url or target.startswith(f"{i.url}/")), None)
            if info is None:
                raise ContractError(422, f"{target} is no address of this run, so it is not known how a sandbox reaches it")
            path = target.removeprefix(info.url)
        else:
            info = self.info(target)
        url = info.published.get(block)
        if url is None:
            raise ContractError(422, f"code in a sandbox of '{block}' cannot call {info.name}: {self._why_not(info, block)}")
        return url + path

    def _why_not(self, info: PeerInfo, block: str) -> str:
        if block not in self.sandbox_providers:
            return f"the configuration has no sandbox provider of this name (known: {', '.join(self.sandbox_providers) or 'none'})"
        if info.remote:
            return "it runs elsewhere, under a token that no sandbox may have; put a model server of this run before it"
        return self.unreachable.get(block) or f"servers of kind {info.kind} offer nothing to sandboxes"

    def peer(self, ref: ServerRef | str, episode: EpisodeId | None = None) -> Peer:
        """A client for the instance that `ref` names; with `episode`, the peer's log names it at each call."""
        info = self.info(ref)
        return Peer(info.name, info.url, self.transport, headers=info.call_headers(self.credentials) | for_episode(episode))
