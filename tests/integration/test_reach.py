"""What code in a real container reaches of a run, network by network; and that a run's network goes with it."""

import json
import re
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil
import pytest

from gym.runtime.listen import answering, open_socket, url_of
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import NETWORK, Ownership, network_id
from gym.sandbox.provider import Provider
from gym.sandbox.reach import ReachError, check_reach
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxSpec, SandboxSpecError
from gym.servers.auth import Credentials
from gym.servers.http import Access, Endpoint
from gym.servers.routing import Router
from tests.integration.conftest import GymRuns, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.slow]

IMAGE = "gym-test/calc:latest"

CONFIG = """
config_paths:
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
- responses_api_models/scripted_model/configs/scripted_model.yaml
sandbox:
  docker:
    create: {{network: {network}, pull: never}}
box:
  resources_servers:
    box_lender: {{entrypoint: app.py, image: "{image}", metadata: {{test: "{tag}"}}}}
agent:
  responses_api_agents:
    inside_agent:
      entrypoint: app.py
      model_server: {{type: responses_api_models, name: policy_model}}
      forbidden: {forbidden}
env:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn:
      resources_server: {{type: resources_servers, name: box}}
      agent_server: {{type: responses_api_agents, name: agent}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 20
"""


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], text=True, capture_output=True, check=True, timeout=60).stdout


def networks(run_id: str) -> list[str]:
    """The networks of a run."""
    return docker("network", "ls", "-q", "--filter", f"label=nemo-gym.run-id={run_id}").split()


@pytest.fixture
def reach(docker_engine: None, runs: GymRuns) -> Iterator[GymRuns]:
    """Runs whose containers and networks must all be gone in the end."""
    yield runs
    runs.end()
    boxes = docker("ps", "-aq", "--filter", f"label=nemo-gym.meta.test={runs.tag}").split()
    left = [*boxes, *(network for run_id in run_ids(runs) for network in networks(run_id))]
    if boxes:
        docker("rm", "-f", *boxes)
    for network in left[len(boxes) :]:
        docker("network", "rm", network)
    assert not left, f"{len(left)} containers and networks of the test are left over"


def run_ids(runs: GymRuns) -> list[str]:
    lines = [line for path in runs.folder.glob("*.out") for line in path.read_bytes().splitlines()]
    return [orjson.loads(line)["run_id"] for line in lines if line.startswith(b'{"event":"ready"')]


def configure(runs: GymRuns, network: str, *forbidden: str) -> None:
    runs.config.write_text(CONFIG.format(network=network, image=IMAGE, tag=runs.tag, forbidden=json.dumps(forbidden)))


def answers(runs: GymRuns) -> dict[str, list[Any]]:
    """What the agent in the sandbox said."""
    (row,) = runs.lines("out.jsonl")
    assert row["reward"] == 1.0
    return json.loads(row["response"]["output"][0]["content"][0]["text"])


@pytest.mark.parametrize(("network", "isolation"), [("internal", "process"), ("internal", "colocated"), ("bridge", "process")])
def test_an_agent_in_a_sandbox_calls_its_model_and_its_tool_and_nothing_else(reach: GymRuns, network: str, isolation: str) -> None:
    """The rollout's token opens the rollout's model routes, the cookie opens the tool; nothing else is even there."""
    with socket.create_server(("127.0.0.1", 0)) as private:
        outside = ["1.1.1.1:53", "example.com:80"] if network == "internal" else []
        configure(reach, network, f"gateway:{private.getsockname()[1]}", f"127.0.0.1:{private.getsockname()[1]}", *outside)
        started = reach.eval(reach.rows({"responses_create_params": {"input": "go"}}), "--attempts", "1", f"isolation={isolation}")
        assert started.ended(90) == 0, started.errors
    said = answers(reach)
    status = {name: code for name, (code, _) in said.items()}
    assert status["model"] == 200, said
    assert json.loads(said["model"][1])["object"] == "response"
    assert (status["tool"], status["health"]) == (200, 200)
    for name in ("model of another rollout", "model with the run's token", "model without a token", "tool without a cookie"):
        assert status[name] == 401, name
    controls = {name: code for name, code in status.items() if name.startswith("control ")}
    assert set(controls.values()) == {404}, controls
    assert len(controls) == 22
    shut = {name: code for name, code in status.items() if ":" in name and not name.startswith("control ")}
    assert set(shut.values()) == {0}, shut
    assert len(shut) == 2 + 2 * (isolation == "process") + len(outside)
    reach.check_nothing_left()


def test_an_agent_that_cannot_call_its_model_fails_once_and_for_good(reach: GymRuns) -> None:
    configure(reach, "none")
    started = reach.eval(reach.rows({"responses_create_params": {"input": "go"}}), "--attempts", "3")
    assert started.ended(60) == 76, started.errors
    (failed,) = reach.lines("out_failures.jsonl")
    assert failed["_ng_failure_terminal"] is True
    assert "code in a sandbox of 'sandbox' cannot call policy_model: its network is 'none'" in failed["_ng_failure_message"]
    reach.check_nothing_left()


def test_the_addresses_are_shown(reach: GymRuns) -> None:
    configure(reach, "internal")
    started = reach.start()
    ready = started.ready()
    said = orjson.loads(reach.run("env", "status", "--json")[1])
    (gateway,) = json.loads(docker("network", "inspect", network_id(ready["run_id"])))[0]["IPAM"]["Config"]
    for name in ("policy_model", "box"):
        published = said["instances"][name]["published"]
        assert published == ready["instances"][name]["published"]
        assert urlsplit(published["sandbox"]).hostname == gateway["Gateway"]
        assert published["sandbox"] in reach.run("env", "status")[1]
    assert said["instances"]["agent"]["published"] == said["instances"]["env"]["published"] == {}
    (listed,) = [entry for entry in json.loads(reach.run("sandbox", "ls", "--json")[1]) if entry["run_id"] == ready["run_id"]]
    assert (listed["kind"], listed["owner_state"], listed["sandbox_id"]) == ("network", "alive", network_id(ready["run_id"]))
    started.signal()
    assert started.ended() == 130
    assert "left-over" not in started.errors
    assert networks(ready["run_id"]) == []
    reach.check_nothing_left()


@pytest.mark.parametrize("by", ["gym sandbox reap", "the next start"])
def test_everything_is_killed_and_the_network_goes(reach: GymRuns, by: str) -> None:
    """Nobody of the run is left to remove its network; it is removed after the sandbox that is in it."""
    configure(reach, "internal")
    started = reach.start()
    run_id = started.ready()["run_id"]
    box = docker(
        *("run", "-d", "--rm", "--network", network_id(run_id), "--label", f"nemo-gym.meta.test={reach.tag}"),
        *(argument for label in labels_of(run_id) for argument in ("--label", label)),
        *("--name", f"nemo-gym-{uuid.uuid4().hex}", IMAGE, "sleep", "300"),
    )
    for pid in reach.processes():
        psutil.Process(pid).kill()
    started.process.wait()
    assert len(networks(run_id)) == 1
    if by == "the next start":
        again = reach.start()
        again.ready()
        wait_for(lambda: not networks(run_id), "the next run removes the network", 40)
        # Other tests may have left orphans of their own just now, so the numbers are not ours alone.
        wait_for(
            lambda: re.search(r"released [1-9]\d* sandbox\(es\) and [1-9]\d* network\(s\) whose owners", again.errors), lambda: again.errors
        )
        again.signal()
        again.ended()
    else:
        code, out, errors = reach.run("sandbox", "reap")
        assert (code, "released" in errors) == (0, True), errors  # with what other tests may have left just now
        assert network_id(run_id) in out
    assert networks(run_id) == []
    assert box.strip() not in docker("ps", "-q", "--no-trunc")
    reach.check_nothing_left()


def labels_of(run_id: str) -> list[str]:
    """The labels of the run's network, as those of a sandbox that its owner made."""
    (network,) = json.loads(docker("network", "inspect", network_id(run_id)))
    return [f"{name}={value}" for name, value in network["Labels"].items() if not name.endswith((".role", ".expires-at"))]


def test_a_start_that_fails_leaves_no_network(reach: GymRuns) -> None:
    configure(reach, "internal")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, errors = reach.run("env", "start", "--config", reach.config, f"head_server.port={taken.getsockname()[1]}")
    assert (code, "cannot listen on" in errors) == (1, True), errors
    assert not [path for path in (reach.state / "runs").glob("*/*") if path.name != "logs"]  # a network that is owed would stay journalled


# --- sandboxes without a run around them


class Site:
    """One provider block with its network, and a server of ours that its sandboxes may see."""

    def __init__(self, provider: Provider, run_id: str, url: str) -> None:
        self.provider, self.run_id, self.url = provider, run_id, url

    async def box(self, **fields: Any) -> OwnedSandbox:
        return await OwnedSandbox.start(self.provider, SandboxSpec(image=IMAGE, ttl_s=300, **fields), Ownership(self.run_id, "t"))


async def ok(call: Any) -> Any:
    return {"status": "ok"}


@pytest.fixture
async def site(docker_run_id: str) -> AsyncIterator[Site]:
    provider = provider_from_block("sandbox", {"docker": {"create": {"network": "internal", "pull": "never"}}})
    assert provider.networks is not None
    network = provider.networks.needed(docker_run_id)
    assert network is not None
    await provider.networks.make(network, Ownership(docker_run_id, "", NETWORK))
    try:
        view = await provider.host_view(docker_run_id)
        listener = open_socket(view.listen, 0, "t")
        app = Router([Endpoint("/healthz", ok, Credentials("x", "y"), Access.OPEN, "GET", data=True)]).data()
        async with answering(app, listener):
            yield Site(provider, docker_run_id, url_of(listener))
    finally:
        assert await provider.networks.remove(network)
        await provider.aclose()


async def test_two_sandboxes_of_a_run_reach_the_model_and_not_each_other(site: Site) -> None:
    assert site.provider.networks is not None
    async with await site.box(entrypoint=["python3", "-m", "http.server", "8000"]) as listens, await site.box() as calls:
        for box in (listens, calls):
            (reached,) = await check_reach(box, [site.url])
            assert reached.tool == "bash"
        address = (await listens.exec("hostname -i")).stdout.strip()
        own = await listens.exec(f"python3 -c 'import socket; socket.create_connection((\"{address}\", 8000), 5)'")
        assert own.ok, own.stderr  # somebody does listen there
        other = await calls.exec(f"python3 -c 'import socket; socket.create_connection((\"{address}\", 8000), 2)'")
        assert (other.ok, "imed out" in other.stderr or "refused" in other.stderr) == (False, True), other
        named = await calls.exec("getent hosts example.com", timeout_s=20)
        assert (named.return_code, named.stdout) == (2, "")
        assert await site.provider.networks.remove(network_id(site.run_id)) is False  # they are in it


async def test_a_sandbox_that_does_not_reach_us_says_so(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as private:
        url = f"http://{urlsplit(site.url).hostname}:{private.getsockname()[1]}"
        async with await site.box() as box:
            with pytest.raises(ReachError, match=rf"\(network internal\) does not reach {url}: bash said: .*refused"):
                await check_reach(box, [url])
        async with await site.box(network="none") as box:
            with pytest.raises(ReachError, match=r"\(network none\) does not reach .*: bash said: .*unreachable"):
                await check_reach(box, [site.url])


async def test_no_network_of_a_run_is_an_error_that_says_why(docker_run_id: str) -> None:
    provider = provider_from_block("sandbox", {"docker": {"create": {"network": "bridge", "pull": "never"}}})
    try:
        with pytest.raises(SandboxSpecError, match=r"network 'internal' is made when a run starts whose provider block asks for it"):
            await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE, network="internal"), Ownership(docker_run_id, "t"))
    finally:
        await provider.aclose()


async def test_the_same_network_twice_is_refused(site: Site) -> None:
    """A run whose id another has would remove the other's network."""
    assert site.provider.networks is not None
    with pytest.raises(SandboxError, match="already exists"):
        await site.provider.networks.make(network_id(site.run_id), Ownership(site.run_id, "", NETWORK))
    assert [record.sandbox_id for record in await site.provider.networks.find(run_id=site.run_id)] == [network_id(site.run_id)]
