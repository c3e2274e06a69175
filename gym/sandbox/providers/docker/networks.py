"""Networks of one engine: the one that a run makes for its sandboxes, and how this machine is seen from any.

The run's network is `--internal` (no way out) and without traffic among its containers; what they reach
is this machine, at the network's gateway. Invariants: there is at most one for each run and engine, since an
engine has addresses for about thirty networks; it is not removed while a container is in it.
"""

import asyncio
import ipaddress
import socket
from typing import Any, cast

import orjson
import psutil

from gym.sandbox.cleanup import finish
from gym.sandbox.ownership import MARK, NETWORK, ROLE, RUN_ID, Ownership, network_id
from gym.sandbox.provider import HostView, mark_doubtful
from gym.sandbox.providers.docker.engine import Engine, EngineError, name_in_path
from gym.sandbox.providers.docker_options import INTERNAL, NOWHERE, DockerOptions
from gym.sandbox.spec import SandboxError, SandboxRecord, SandboxSpecError, SandboxStatus

TTL_S = 30 * 86_400.0
"""After this a network goes whose owner nobody can judge."""

_SET_IT = "set reach_host of the block to the address at which its containers reach this machine, or to 'none' if nothing in them calls us"


class Networks:
    """Networks as one provider block needs them."""

    def __init__(self, engine: Engine, options: DockerOptions) -> None:
        self._engine = engine
        self._options = options

    def needed(self, run_id: str) -> str | None:
        """The id of the run's network, if the block asks for it."""
        return network_id(run_id) if self._options.create.network == INTERNAL else None

    async def make(self, network_id: str, ownership: Ownership) -> None:
        """Make the run's network. A cancellation waits until it is known how that ended, so that whoever comes next finds it."""
        body: dict[str, Any] = {
            "Name": network_id,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "Internal": True,
            "Options": {"com.docker.network.bridge.enable_icc": "false"},
            "Labels": ownership.labels(TTL_S, {}),
        }
        try:
            await finish(self._engine.request("POST", "/networks/create", body=body), self._options.request_timeout_s + 1)
        except EngineError as error:
            if "fully subnetted" in str(error) or "non-overlapping" in str(error):
                advice = "remove unused ones with 'gym sandbox reap' or 'docker network prune', or give the engine more address pools"
                raise SandboxError(f"the engine has no addresses left for the network of this run: {advice} ({error})") from error
            if error.unreachable or error.status >= 500:
                mark_doubtful(error)
            raise
        except asyncio.CancelledError as error:
            mark_doubtful(error)
            raise

    async def remove(self, network_id: str) -> bool:
        """Remove a network of ours; False while containers are in it."""
        try:
            await self._engine.request("DELETE", f"/networks/{name_in_path(network_id)}")
        except EngineError as error:
            if error.status == 404:
                return True
            if "active endpoints" in str(error):
                return False
            raise SandboxError(f"network {network_id} could not be removed: {error}", "session_release_failed") from error
        return True

    async def find(self, *, run_id: str | None = None) -> list[SandboxRecord]:
        """All networks of ours, or of one run."""
        wanted = [f"{MARK}=1", f"{ROLE}={NETWORK}", *([f"{RUN_ID}={run_id}"] if run_id is not None else [])]
        content, _ = await self._engine.request("GET", "/networks", params={"filters": {"label": wanted}})
        found = cast("list[dict[str, Any]]", orjson.loads(content))
        return [SandboxRecord(str(entry["Name"]), SandboxStatus.RUNNING, dict(entry.get("Labels") or {})) for entry in found]

    async def host_view(self, run_id: str) -> HostView:
        """How this machine is seen from containers in the block's network."""
        options = self._options
        network = "bridge" if options.create.network in (None, "default") else options.create.network
        if network == "none":
            return HostView(why_not="its network is 'none'; with 'internal' they reach model servers and tools, and nothing else")
        if options.reach_host == NOWHERE:
            return HostView(why_not="its reach_host is 'none'")
        if options.reach_host is not None:
            return HostView(options.reach_host, options.reach_listen or options.reach_host, given=True)
        if not await self._is_here():
            raise SandboxSpecError(f"the engine at {self._engine.address.text} runs on another machine: {_SET_IT}")
        if network == "host":
            return HostView("127.0.0.1", "127.0.0.1")
        if network.startswith("container:"):
            raise SandboxSpecError(f"what containers see from within network {network!r} cannot be found out: {_SET_IT}")
        gateway = await self._gateway(network_id(run_id) if network == INTERNAL else network)
        return HostView(gateway, gateway)

    async def _gateway(self, name: str) -> str:
        """This machine's own address in a network."""
        network = await self._engine.json("GET", f"/networks/{name_in_path(name)}")
        if network.get("Driver") != "bridge":
            raise SandboxSpecError(f"network {name!r} ({network.get('Driver')}) shows no address of this machine: {_SET_IT}")
        ipam = cast("dict[str, Any]", network.get("IPAM") or {})
        configs = cast("list[dict[str, Any]]", ipam.get("Config") or [])
        told = [str(config["Gateway"]).partition("/")[0] for config in configs if config.get("Gateway")]
        # Some engines leave the gateway of a bridge that they found out; it is the bridge's own address.
        options = cast("dict[str, str]", network.get("Options") or {})
        interface = options.get("com.docker.network.bridge.name") or f"br-{str(network.get('Id'))[:12]}"
        told += [address.address for address in psutil.net_if_addrs().get(interface, []) if address.family == socket.AF_INET]
        chosen = next((address for address in told if ":" not in address), None)
        if chosen is None:
            raise SandboxSpecError(f"network {name!r} shows no address of this machine: {_SET_IT}")
        return chosen

    async def _is_here(self) -> bool:
        """Whether the engine runs on this machine. One behind a forwarded socket looks as if it did."""
        at = self._engine.address
        if at.socket_path is not None:
            return True
        try:
            found = await asyncio.get_running_loop().getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)
        except OSError:
            return False
        ours = {address.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for address in addresses}
        return all(str(entry[4][0]) in ours or ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


def missing_network(network: str | None, error: EngineError) -> str:
    """What to do if the engine refused because the run's network is not there; else nothing."""
    if network != INTERNAL or error.status != 404 or "network" not in str(error):
        return ""
    return " — network 'internal' is made when a run starts whose provider block asks for it (create.network), and lives as long as the run"
