"""What a start opens for sandboxes, and what it says where it cannot: against an engine that answers as it is told."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from gym.config.errors import UserError
from gym.config.plan import Instance
from gym.config.schema import ServerConfig
from gym.runtime.folder import RunFolder
from gym.runtime.publishing import Published, publish, withdraw
from gym.sandbox.ownership import NETWORK, Ownership, network_id
from gym.sandbox.provider import is_doubtful
from gym.sandbox.registry import provider_from_block
from gym.servers.auth import Credentials

KINDS = ["responses_api_models", "resources_servers", "responses_api_agents", "environment_servers"]


class NetworkEngine:
    """An engine that has networks: name -> what inspecting it says."""

    def __init__(self) -> None:
        self.networks: dict[str, dict[str, Any]] = {"bridge": bridge("127.0.0.1")}
        self.made: list[dict[str, Any]] = []
        self.refuses: tuple[int, str] | None = None
        self.journal: list[str] = []
        self.folder: RunFolder | None = None
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.partition("/v1.41")[2] or request.path
        if path == "/_ping":
            return web.Response(text="OK", headers={"Api-Version": "1.41"})
        if path == "/networks/create":
            if self.folder is not None:
                self.journal = [lease.sandbox_id for leases in self.folder.leases.owed().values() for lease in leases]
            if self.refuses:
                return web.json_response({"message": self.refuses[1]}, status=self.refuses[0])
            self.asked.set()
            await self.goes_on.wait()
            body = await request.json()
            self.made.append(body)
            self.networks[body["Name"]] = bridge("127.0.0.2") | {"Name": body["Name"], "Labels": body["Labels"]}
            return web.json_response({"Id": "n1"}, status=201)
        if path == "/networks":
            return web.json_response([network for network in self.networks.values() if network.get("Labels")])
        if path == "/containers/json":
            return web.json_response([])
        name = path.removeprefix("/networks/")
        if name not in self.networks:
            return web.json_response({"message": f"network {name} not found"}, status=404)
        if request.method == "DELETE":
            del self.networks[name]
            return web.Response(status=204)
        return web.json_response(self.networks[name])


def bridge(gateway: str | None, interface: str | None = None) -> dict[str, Any]:
    options = {} if interface is None else {"com.docker.network.bridge.name": interface}
    config = {"Subnet": "x"} if gateway is None else {"Subnet": "x", "Gateway": gateway}
    return {"Id": "0" * 64, "Driver": "bridge", "IPAM": {"Config": [config]}, "Options": options}


@pytest.fixture
async def engine(folder: RunFolder) -> AsyncIterator[NetworkEngine]:
    made = NetworkEngine()
    made.folder = folder
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(folder.path / "e.sock")).start()
    yield made
    await runner.cleanup()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("GYM_STATE_DIR", str(tmp_path))
    return RunFolder("r")


@pytest.fixture
def published() -> Iterator[Published]:
    made = Published()
    yield made
    for listener in (one for sockets in made.sockets.values() for one in sockets):
        listener.close()


def instances(kinds: list[str]) -> list[Instance]:
    return [Instance(kind, kind, kind, Path(), ServerConfig(), {}) for kind in kinds]  # pyright: ignore[reportArgumentType]


def block(folder: RunFolder, network: str | None = "bridge", **options: Any) -> dict[str, Any]:
    return {"docker": {"host": f"unix://{folder.path}/e.sock", "create": {"network": network}, **options}}


async def run(published: Published, folder: RunFolder, kinds: list[str] | None = None, own_host: str = "127.0.0.1", **blocks: Any) -> None:
    await asyncio.to_thread(publish, published, instances(KINDS if kinds is None else kinds), blocks, folder, own_host)


def hosts(published: Published, block: str) -> set[str | None]:
    return {urlsplit(urls[block]).hostname for urls in published.urls.values() if block in urls}


async def test_servers_with_data_routes_get_a_socket_for_each_address(
    engine: NetworkEngine, folder: RunFolder, published: Published
) -> None:
    """Blocks that see us at one address share it; the run's own network is another."""
    await run(
        published,
        folder,
        a=block(folder),
        b=block(folder, None),
        c=block(folder, "default"),
        d=block(folder, "host"),
        e=block(folder, "internal"),
    )
    assert set(published.sockets) == set(published.urls) == {"responses_api_models", "resources_servers"}
    assert {name: len(sockets) for name, sockets in published.sockets.items()} == {"responses_api_models": 2, "resources_servers": 2}
    assert [hosts(published, name) for name in "abcde"] == [{"127.0.0.1"}] * 4 + [{"127.0.0.2"}]
    assert published.urls["resources_servers"]["a"] == published.urls["resources_servers"]["d"]
    assert len({url for urls in published.urls.values() for url in urls.values()}) == 4


async def test_the_network_is_made_once_and_journalled_before(engine: NetworkEngine, folder: RunFolder, published: Published) -> None:
    await run(published, folder, a=block(folder, "internal"), b=block(folder, "internal"))
    (made,) = engine.made
    assert engine.journal == [made["Name"]] == [network_id("r")]
    assert (made["Internal"], made["Options"]) == (True, {"com.docker.network.bridge.enable_icc": "false"})
    assert {label.removeprefix("nemo-gym.") for label in made["Labels"]} >= {"sandbox", "run-id", "role", "owner-pid", "expires-at"}
    assert hosts(published, "a") == hosts(published, "b") == {"127.0.0.2"}
    await asyncio.to_thread(withdraw, {"a": block(folder, "internal"), "b": block(folder, "internal")}, folder)
    assert network_id("r") not in engine.networks
    assert folder.leases.owed() == {}


@pytest.mark.parametrize(
    ("kinds", "blocks", "why"),
    [
        (KINDS, {"network": "none"}, "its network is 'none'; with 'internal' they reach model servers and tools, and nothing else"),
        (KINDS, {"reach_host": "none"}, "its reach_host is 'none'"),
        (KINDS[1:], {}, "no model server runs here"),
    ],
)
async def test_nothing_is_opened_where_nobody_needs_it(
    engine: NetworkEngine, folder: RunFolder, published: Published, kinds: list[str], blocks: dict[str, Any], why: str
) -> None:
    await run(published, folder, kinds, a=block(folder, **blocks))
    assert (published.sockets, published.urls) == ({}, {})
    assert why in published.unreachable["a"]


async def test_the_network_is_made_for_sandboxes_that_call_nobody_too(
    engine: NetworkEngine, folder: RunFolder, published: Published
) -> None:
    await run(published, folder, KINDS[1:], a=block(folder, "internal"))
    assert len(engine.made) == 1


async def test_local_sandboxes_that_share_our_network_see_our_loopback(folder: RunFolder, published: Published) -> None:
    await run(published, folder, shared={"local": {"create": {"network": "host"}}}, alone={"local": {}})
    assert hosts(published, "shared") == {"127.0.0.1"}
    assert "its network is 'none'" in published.unreachable["alone"]


async def test_a_bridge_that_names_no_gateway_is_asked_for_its_own_address(
    engine: NetworkEngine, folder: RunFolder, published: Published
) -> None:
    engine.networks["bridge"] = bridge(None, "lo")
    await run(published, folder, a=block(folder))
    assert hosts(published, "a") == {"127.0.0.1"}


@pytest.mark.parametrize(
    "network", [{"Driver": "macvlan", "IPAM": {"Config": [{"Gateway": "127.0.0.1"}]}}, bridge(None), {"Driver": "bridge"}]
)
async def test_a_network_without_an_address_of_ours_must_be_told(
    engine: NetworkEngine, folder: RunFolder, published: Published, network: dict[str, Any]
) -> None:
    engine.networks["lan"] = network
    with pytest.raises(UserError, match=r"sandbox provider a: network 'lan'.* shows no address of this machine: set reach_host"):
        await run(published, folder, a=block(folder, "lan"))
    await run(published, folder, own_host="127.0.0.3.nip.invalid", b=block(folder, "lan"))
    assert "cannot listen on 127.0.0.3.nip.invalid" in published.unreachable["b"]  # default_host stands in, as far as it goes
    await run(published, folder, c=block(folder, "lan", reach_host="127.0.0.4"))
    assert hosts(published, "c") == {"127.0.0.4"}


async def test_an_engine_elsewhere_must_be_told_how_it_reaches_us(folder: RunFolder, published: Published) -> None:
    """Nobody is asked: the address is from a range that leads nowhere."""
    remote: dict[str, Any] = {"docker": {"host": "tcp://198.51.100.77:2375"}}
    with pytest.raises(UserError, match=r"the engine at tcp://198.51.100.77:2375 runs on another machine: set reach_host of the block"):
        await run(published, folder, a=remote)
    remote["docker"] |= {"reach_host": "head.cluster", "reach_listen": "127.0.0.1"}
    await run(published, folder, b=remote)
    assert hosts(published, "b") == {"head.cluster"}
    await run(published, folder, c={"docker": {"host": "tcp://198.51.100.77:2375", "reach_host": "none"}})
    assert "c" in published.unreachable


async def test_an_address_of_the_user_must_work_and_one_found_is_only_told(
    engine: NetworkEngine, folder: RunFolder, published: Published
) -> None:
    with pytest.raises(
        UserError, match=r"responses_api_models, for sandboxes of 'a': cannot listen on 198.51.100.9: .* — set a.docker.reach_listen"
    ):
        await run(published, folder, a=block(folder, reach_host="198.51.100.9"))
    engine.networks["bridge"] = bridge("198.51.100.9")
    await run(published, folder, b=block(folder))
    assert "set b.docker.reach_host" in published.unreachable["b"]
    assert published.sockets == {}


async def test_an_engine_that_does_not_answer_keeps_nobody_from_starting(folder: RunFolder, published: Published) -> None:
    await run(published, folder, a=block(folder))
    assert "no Docker engine answers" in published.unreachable["a"]
    with pytest.raises(UserError, match="the network of this run cannot be made: no Docker engine answers"):
        await run(published, folder, b=block(folder, "internal"))
    assert folder.leases.owed() != {}  # it may have come about: nobody could tell


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (
            (403, "all predefined address pools have been fully subnetted"),
            "the engine has no addresses left for the network of this run: remove unused",
        ),
        ((409, "network with name x already exists"), "already exists"),
    ],
)
async def test_a_network_that_is_refused_owes_nothing(
    engine: NetworkEngine, folder: RunFolder, published: Published, refusal: tuple[int, str], says: str
) -> None:
    engine.refuses = refusal
    with pytest.raises(UserError, match=says):
        await run(published, folder, a=block(folder, "internal"))
    assert folder.leases.owed() == {}


async def test_a_network_that_is_cancelled_while_it_is_made_is_there_to_be_removed(engine: NetworkEngine, folder: RunFolder) -> None:
    """As by a Ctrl-C: whoever takes the start back must not come before the engine has made it."""
    provider = provider_from_block("a", block(folder, "internal"))
    assert provider.networks is not None
    engine.goes_on.clear()
    making = asyncio.ensure_future(provider.networks.make("n", Ownership("r", "", NETWORK)))
    await engine.asked.wait()
    making.cancel()
    engine.goes_on.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await making
    assert is_doubtful(caught.value)
    assert [record.sandbox_id for record in await provider.networks.find()] == ["n"]
    await provider.aclose()


async def test_a_journal_that_cannot_be_written_means_no_network(engine: NetworkEngine, folder: RunFolder, published: Published) -> None:
    folder.leases.path.mkdir()
    folder.leases.run_book.mkdir()
    with pytest.raises(UserError, match="lease journal cannot be written"):
        await run(published, folder, a=block(folder, "internal"))
    assert engine.made == []
    folder.leases.run_book.rmdir()


def test_every_socket_of_a_child_is_its_own(folder: RunFolder, tmp_path: Path) -> None:
    """A spawned server answers with all routes on the first socket, and with data routes on the others."""
    import subprocess
    import sys
    import urllib.error
    import urllib.request

    from gym.runtime.loading import InstanceSpec
    from gym.runtime.spawning import spawn

    root = Path(__file__).resolve().parents[3]
    directory = root / "responses_api_models" / "scripted_model"
    credentials = Credentials("run-token-0123456789", "secret")
    spec = InstanceSpec(
        "m", "responses_api_models", "scripted_model", str(directory), {}, "r", "http://x", str(folder.path), credentials.token, "secret"
    )
    path = folder.write_private("m.json", spec.to_json())
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        child = spawn(sys.executable, path, [one.fileno() for one in sockets], tmp_path / "log", None)
        stack.callback(subprocess.run, ["kill", "-9", str(child.pid)], check=False)

        def status(number: int, route: str) -> int:
            url = f"http://127.0.0.1:{sockets[number].getsockname()[1]}{route}"
            try:
                with urllib.request.urlopen(urllib.request.Request(url, headers=credentials.headers()), timeout=30) as reply:
                    return reply.status
            except urllib.error.HTTPError as error:
                return error.code

        assert [status(number, "/status") for number in range(3)] == [200, 404, 404]
        assert [status(number, "/healthz") for number in range(3)] == [200, 200, 200]
