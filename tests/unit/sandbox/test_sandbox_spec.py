"""Specs, blocks and capabilities: what is asked wrongly is refused, by name."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from gym.protocol.failures import check_failure_kind
from gym.sandbox import spec as specs
from gym.sandbox.limits import Host, clamp
from gym.sandbox.ownership import Ownership, new_sandbox_id
from gym.sandbox.provider import Capabilities, check_capabilities
from gym.sandbox.providers.docker.creation import isolation_of, plan_container
from gym.sandbox.providers.docker_options import DockerCreate
from gym.sandbox.registry import ProviderBlockError, provider_from_block, read_block
from gym.sandbox.spec import SandboxSpec, SandboxSpecError

LACKS_ALL = Capabilities(connect=False, images=False, network=False, users=False, ports=False, snapshots=False, limits=frozenset())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"imgae": "x"}, "imgae"),
        ({"resources": {"ram": 1}}, "ram"),
        ({"resources": {"cpu": 0}}, "greater than 0"),
        ({"ttl_s": 0}, "greater than 0"),
        ({"workdir": "testbed"}, "absolute path"),
        ({"files": {"a.txt": ""}}, "absolute path"),
        ({"env": {"A=B": ""}}, "environment variable"),
        ({"ports": [70000]}, "65535"),
        ({"entrypoint": []}, "at least 1"),
        ({"resources": {"cpu": 1}, "resource_requests": {"cpu": 2}}, "above its limit"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SandboxSpec.model_validate(fields)


def test_what_a_provider_lacks_is_refused_all_at_once() -> None:
    check_capabilities("bare", LACKS_ALL, SandboxSpec(env={"A": "b"}))
    asked = SandboxSpec(image="i", network="none", user="u", ports=[80], resources={"cpu": 1})
    with pytest.raises(SandboxSpecError) as refused:
        check_capabilities("bare", LACKS_ALL, asked)
    for part in ("'bare'", "image 'i'", "network 'none'", "user 'u'", "ports [80]", "a limit on cpu"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "sandbox: a sandbox provider block takes one provider (found: none) — name one of: docker, local"),
        ({"docker": {}, "local": {}}, "(found: docker, local)"),
        ({"dokcer": {}}, "sandbox.dokcer: is not a sandbox provider — did you mean 'docker'?"),
        (
            {"docker": {"create": {"netwrok": "none"}}},
            "sandbox.docker.create.netwrok: is not a key that is known here ('none') — did you mean 'network'?",
        ),
        ({"docker": {"coppy": {}}}, "sandbox.docker.coppy: is not a key that is known here ({}) — did you mean 'copy'?"),
        ({"docker": {"exec": {"concurrency": 0}}}, "sandbox.docker.exec.concurrency: must be greater than or equal to 1 (0) — raise it"),
        (
            {"docker": {"hosts": ["tcp://a:1"], "host": "tcp://b:1"}},
            "sandbox.docker.host: stands beside hosts — keep host for one engine, or hosts for several",
        ),
        ({"docker": {"hosts": ["tcp://a:1", {"host": "tcp://a:1"}]}}, "sandbox.docker.hosts: names tcp://a:1 more than once"),
        ({"docker": {"hosts": [{"host": "tcp://a:1", "wieght": 2}]}}, "sandbox.docker.hosts[0].wieght: is not a key"),
        (
            {"docker": {"reach_host": "http://10.0.0.1:80"}},
            "sandbox.docker.reach_host: 'http://10.0.0.1:80' is not a host — write a name or",
        ),
        ({"docker": {"reach_host": "a b"}}, "sandbox.docker.reach_host: 'a b' is not a host"),
        ({"docker": {"reach_listen": "10.0.0.1"}}, "sandbox.docker.reach_listen: needs a reach_host, which is what containers call"),
        ({"docker": {"reach_host": "none", "reach_listen": "::1"}}, "sandbox.docker.reach_listen: needs a reach_host"),
        ({"docker": {}, "default_metadata": {"a": 1}}, "sandbox.default_metadata: does not map names to text"),
    ],
)
def test_a_wrong_block_names_its_key(block: dict[str, object], said: str) -> None:
    with pytest.raises(ProviderBlockError) as refused:
        read_block("sandbox", block)
    assert said in str(refused.value)


def test_a_block_becomes_a_provider_without_asking_anybody() -> None:
    options = {"host": "tcp://192.0.2.1:2375", "copy": {"timeout_s": 5}, "create": {"network": "none"}}
    provider = provider_from_block("sandbox", {"docker": options, "default_metadata": {"team": "x"}})
    assert provider.name == "docker"
    assert not provider.capabilities.ports
    assert read_block("sandbox", {"docker": None}).options.model_dump()["create"]["use_init"] is True


def test_checking_a_block_loads_no_provider() -> None:
    program = (
        "import sys; from gym.sandbox.registry import read_block; read_block('s', {'docker': {}}); print([m for m in sys.modules if m in "
        "('aiohttp', 'gym.sandbox.providers.docker')])"
    )
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_spec_replaces_only_the_isolation_that_it_sets() -> None:
    create = DockerCreate(network="none", read_only=True, cap_drop=["ALL"])
    merged = isolation_of(SandboxSpec(provider_options={"read_only": False}), create)
    assert (merged.network, merged.read_only, merged.cap_drop) == ("none", False, ["ALL"])
    assert isolation_of(SandboxSpec(network="host"), create).network == "host"
    with pytest.raises(SandboxSpecError, match=r"provider_options\.privileged"):
        isolation_of(SandboxSpec(provider_options={"privileged": True}), create)


def test_limits_are_clamped_and_floors_are_not() -> None:
    host = Host(cpu=2, memory_mib=4096)
    limits, clamped = clamp(SandboxSpec(resources={"cpu": 8, "memory_mib": 1024}), host)
    assert (limits.cpu, limits.memory_mib, clamped) == (2, 1024, {"cpu": 8})
    with pytest.raises(SandboxSpecError, match="needs memory_mib 8192, and the host has 4096"):
        clamp(SandboxSpec(resource_requests={"memory_mib": 8192}), host)


def test_a_container_carries_labels_limits_and_its_end() -> None:
    spec = SandboxSpec(image="docker://a/b:1", ttl_s=1.2, resources={"cpu": 0.5, "memory_mib": 100}, entrypoint=["serve", "a b"])
    plan = plan_container(spec, Ownership("run", "inst"), DockerCreate(), Host(8, 8192), {"team": "x"})
    body, host_config = plan.body, plan.body["HostConfig"]
    assert body["Image"] == "a/b:1"
    assert body["Cmd"] == ["2", "serve", "a b"]
    assert body["Labels"]["nemo-gym.run-id"] == "run"
    assert body["Labels"]["nemo-gym.meta.team"] == "x"
    assert "nemo-gym.episode-id" not in body["Labels"]
    assert host_config["AutoRemove"] is True
    assert (host_config["NanoCpus"], host_config["Memory"], host_config["MemorySwap"]) == (500_000_000, 104_857_600, 104_857_600)


def test_every_error_has_a_kind_of_the_table() -> None:
    assert new_sandbox_id() != new_sandbox_id()
    for error in (specs.SandboxSpecError("x"), specs.SandboxGoneError("x"), specs.SandboxFileError("x"), specs.SandboxError("x")):
        assert check_failure_kind(error.kind) == error.kind
    with pytest.raises(ValueError, match="unknown failure kind"):
        specs.SandboxError("x", "no_such_kind")
