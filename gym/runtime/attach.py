"""Using a run that somebody else started: find its head server, ask it what there is, call it."""

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym.client import CallError, Peer
from gym.config.errors import UserError
from gym.config.plan import Route
from gym.config.schema import Dataset
from gym.protocol import routes
from gym.runtime.folder import live_runs
from gym.transports import HTTPTransport


@dataclass(frozen=True)
class HeadAddress:
    """Where a head server answers, and the token that opens it (None where authentication is off)."""

    url: str
    token: str | None
    folder: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What to send with every call."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


def find_head(run_id: str | None = None) -> HeadAddress:
    """The head of the one run that is up, or of `run_id`. Raises UserError.

    $GYM_HEAD_URL, with $GYM_TOKEN_FILE, names one that runs elsewhere.
    """
    url = os.environ.get("GYM_HEAD_URL")
    if url and not url.startswith(("http://", "https://")):
        raise UserError(f"GYM_HEAD_URL={url} is not the address of a head server: it starts with http:// or https://")
    if url and run_id is None:
        return HeadAddress(url.rstrip("/"), _token(Path(os.environ["GYM_TOKEN_FILE"])) if os.environ.get("GYM_TOKEN_FILE") else None)
    runs = live_runs()
    chosen = [(record, path) for record, path in runs if run_id is None or record.run_id == run_id]
    if not chosen:
        known = f" (running: {', '.join(record.run_id for record, _ in runs)})" if runs else ""
        if run_id is not None:
            raise UserError(f"there is no run {run_id}{known or ': nothing is running'}")
        raise UserError("no servers are running: start them with 'gym env start --config …'")
    if len(chosen) > 1:
        raise UserError(f"{len(chosen)} runs are up: choose one with --run: {', '.join(record.run_id for record, _ in chosen)}")
    record, folder = chosen[0]
    token = folder / "token"
    return HeadAddress(record.head_url, _token(token) if token.exists() else None, folder)


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise UserError(f"cannot read the token file {path}: {error.strerror}") from error


@dataclass(frozen=True)
class Attached:
    """A run that is up elsewhere, as its head describes it."""

    run_id: str
    transport: HTTPTransport
    head: HeadAddress
    urls: Mapping[str, str]
    peer_headers: Mapping[str, Mapping[str, str]]
    remote: frozenset[str]
    """The instances that run elsewhere still, under tokens of their own."""
    routes: Mapping[str, Route]
    environments: Mapping[str, Route]
    episode_timeouts: Mapping[str, float | None]
    datasets: tuple[tuple[str, Dataset], ...]
    blocks: Mapping[str, str]
    config_keys: Mapping[str, str]
    """Digests of the keys of its configuration; see `gym.config.digests`."""

    def peer(self, name: str) -> Peer:
        """A client for one instance."""
        own = {} if name in self.remote else self.head.headers
        headers = {**own, **{key.lower(): value for key, value in self.peer_headers[name].items()}}
        return Peer(name, self.urls[name], self.transport, headers=headers)


@contextlib.asynccontextmanager
async def attach(run_id: str | None = None) -> AsyncGenerator[Attached]:
    """Connect to a run that is up. Raises UserError if there is none, or its head cannot be asked."""
    head = find_head(run_id)
    transport = HTTPTransport()
    try:
        said = await ask_head(head, transport, routes.SERVER_INSTANCES)
        yield Attached(
            run_id=said["run_id"],
            transport=transport,
            head=head,
            urls={entry["name"]: entry["url"] for entry in said["instances"]},
            peer_headers={entry["name"]: entry["headers"] for entry in said["instances"]},
            remote=frozenset(entry["name"] for entry in said["instances"] if entry.get("remote")),
            routes={name: Route(**route) for name, route in said["routes"].items()},
            environments={name: Route(**route) for name, route in said["environments"].items()},
            episode_timeouts=said["episode_timeouts"],
            datasets=tuple((entry.pop("instance"), Dataset.model_validate(entry)) for entry in said["datasets"]),
            blocks=said["blocks"],
            config_keys=said["config_keys"],
        )
    finally:
        await transport.aclose()


async def ask_head(head: HeadAddress, transport: HTTPTransport, route: str, timeout: float = 30) -> Any:
    """GET a route of the head server. Raises UserError."""
    try:
        reply = await Peer("the head server", head.url, transport, headers=head.headers).get(route, timeout=timeout)
        return reply.json()
    except (CallError, ValueError) as error:
        raise UserError(f"cannot ask the head server at {head.url}: {error}") from error
