"""What of a run code in sandboxes can reach: the data sockets, their addresses, and the run's own networks.

For each address at which sandboxes of some provider block see this machine, every model server and resources
server gets a socket of its own, on which only data routes exist; blocks that share an address share the
sockets. Invariants: a run without model servers, or whose sandboxes have no way to us, opens nothing; a
network is in the run's lease journal before it is asked for.

What a user said (`reach_host`, `network: internal`, an engine on another machine) must work, or the run does not
start. An address that we found out ourselves and cannot listen on is only told: not every agent needs it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gym.config.errors import UserError
from gym.config.plan import Instance
from gym.runtime.folder import RunFolder
from gym.runtime.listen import open_socket, url_for
from gym.sandbox.leases import LeaseBook
from gym.sandbox.ownership import NETWORK, Ownership
from gym.sandbox.provider import HostView, Provider, is_doubtful
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxSpecError

DATA_KINDS = ("responses_api_models", "resources_servers")
"""The kinds of server that have data routes."""

_NO_MODELS = HostView(why_not="no model server runs here, so nothing is opened for sandboxes")

Blocks = Mapping[str, Mapping[str, Any]]


@dataclass
class Published:
    """What was opened, by instance, and which provider blocks have no way to us."""

    urls: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Instance -> provider block -> base URL."""
    sockets: dict[str, list[socket.socket]] = field(default_factory=dict[str, list[socket.socket]])
    unreachable: dict[str, str] = field(default_factory=dict[str, str])
    """Provider block -> why."""


def publish(published: Published, local: Iterable[Instance], blocks: Blocks, folder: RunFolder, own_host: str) -> None:
    """Make the networks that are asked for, and open what sandboxes need. Not to be called in an event loop.

    `own_host` is where control routes listen: if that is an address that others can call, it stands in where no
    better one is found. Raises UserError; what was opened until then is in `published`, what was made, in the journal.
    """
    if not blocks:
        return
    instances = list(local)
    models = any(instance.kind == "responses_api_models" for instance in instances)
    views = asyncio.run(_views(blocks, folder, _callable(own_host), models))
    servers = [instance.name for instance in instances if instance.kind in DATA_KINDS]
    opened: dict[str, dict[str, socket.socket]] = {}
    for block, view in views.items():
        if view.why_not:
            published.unreachable[block] = view.why_not
            continue
        try:
            if view.listen not in opened:
                opened[view.listen] = _open(servers, view, block)
                for name, listener in opened[view.listen].items():
                    published.sockets.setdefault(name, []).append(listener)
        except UserError as error:
            if view.given:
                raise
            published.unreachable[block] = str(error)
            continue
        for name, listener in opened[view.listen].items():
            published.urls.setdefault(name, {})[block] = url_for(view.host, listener)


def _open(servers: list[str], view: HostView, block: str) -> dict[str, socket.socket]:
    """A socket for each server, or none at all."""
    advice = f"set {block}.docker.reach_listen to an address of this machine at which calls to {view.host} come in"
    if not view.given:
        advice = f"set {block}.docker.reach_host to the address at which its sandboxes reach this machine"
    opened: dict[str, socket.socket] = {}
    try:
        for name in servers:
            opened[name] = open_socket(view.listen, 0, f"{name}, for sandboxes of '{block}'", advice)
    except UserError:
        for listener in opened.values():
            listener.close()
        raise
    return opened


async def _views(blocks: Blocks, folder: RunFolder, fallback: str | None, models: bool) -> dict[str, HostView]:
    views: dict[str, HostView] = {}
    made: set[tuple[str, str]] = set()
    for name, block in blocks.items():
        try:
            provider = provider_from_block(name, block)
        except (SandboxError, ValueError) as error:
            raise UserError(f"sandbox provider {name} cannot be used: {error}") from error
        try:
            for part in provider.parts:
                needed = part.networks.needed(folder.run_id) if part.networks is not None else None
                if needed is not None and (part.place, needed) not in made:
                    await _make_network(name, part, needed, blocks, folder)
                    made.add((part.place, needed))
            views[name] = await _view(name, provider, folder.run_id, fallback) if models else _NO_MODELS
        finally:
            await provider.aclose()
    return views


async def _view(name: str, provider: Provider, run_id: str, fallback: str | None) -> HostView:
    try:
        return await provider.host_view(run_id)
    except SandboxSpecError as error:
        if fallback is not None:
            return HostView(fallback, fallback)
        raise UserError(f"sandbox provider {name}: {error}") from error
    except SandboxError as error:
        return HostView(why_not=f"its network could not be looked up at the start: {error}")


async def _make_network(block: str, provider: Provider, network_id: str, blocks: Blocks, folder: RunFolder) -> None:
    assert provider.networks is not None
    ownership = Ownership(folder.run_id, "", NETWORK)
    book = LeaseBook(folder.leases.run_book)
    leases = book.at(block)
    try:
        folder.leases.write_providers(blocks)
        folder.leases.beat()
        leases.take(network_id, provider.place, ownership)
        try:
            await provider.networks.make(network_id, ownership)
        except BaseException as error:
            if not is_doubtful(error):
                leases.drop(network_id)
            raise
    except OSError as error:
        raise UserError(f"cannot write the lease journal in {folder.path}: {error.strerror or error}") from error
    except SandboxError as error:
        raise UserError(f"sandbox provider {block}: the network of this run cannot be made: {error}") from error
    finally:
        book.close()


def withdraw(blocks: Blocks, folder: RunFolder) -> None:
    """Remove the networks of a run that never came up. What cannot be removed now stays journalled. Not to be called in an event loop."""
    owed = folder.leases.owed().get(folder.leases.run_book, [])
    if not owed:
        return

    async def remove() -> None:
        from gym.sandbox.reaper import Reaper

        reaper = Reaper([provider_from_block(name, blocks[name]) for name in {lease.provider for lease in owed}], [folder.leases])
        try:
            await reaper.reap(folder.run_id, everything_of=folder.run_id)
        finally:
            await reaper.aclose()

    asyncio.run(remove())


def _callable(host: str) -> str | None:
    """`host`, if others than this machine can call it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None if host == "localhost" else host
    return None if address.is_loopback or address.is_unspecified else host
