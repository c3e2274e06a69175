"""What a server knows about the run it is part of: its peers, credentials and places to write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gym.client import Peer, Transport
from gym.config.schema import ServerRef
from gym.protocol.ids import EpisodeId
from gym.protocol.routes import EPISODE_HEADER
from gym.sandbox.leases import LeaseBook, LeaseFolder
from gym.servers.auth import Credentials


@dataclass(frozen=True)
class PeerInfo:
    """One instance of the run as others see it. `url` is the address for our own processes."""

    name: str
    kind: str
    implementation: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    token_capture: bool = False
    """An agent whose model calls are recorded with token ids."""
    remote: bool = False
    """Runs elsewhere, under a token of its own."""

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

    @cached_property
    def leases(self) -> LeaseBook:
        """Where this instance writes down the sandboxes that it asks for: `OwnedSandbox.start(..., leases=context.leases.at(block))`."""
        return LeaseBook(LeaseFolder(self.state_dir).book_path(self.instance))

    def info(self, ref: ServerRef | str) -> PeerInfo:
        """The entry of the instance that `ref` names. Raises KeyError if the run has none."""
        return self.peers[ref if isinstance(ref, str) else ref.name]

    def peer(self, ref: ServerRef | str, episode: EpisodeId | None = None) -> Peer:
        """A client for the instance that `ref` names; with `episode`, the peer's log names it at each call."""
        info = self.info(ref)
        return Peer(info.name, info.url, self.transport, headers=info.call_headers(self.credentials) | for_episode(episode))
