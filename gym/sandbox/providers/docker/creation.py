"""From a spec to the body of the engine's create call. Pure data: nothing here asks the engine.

Invariant: every container of ours carries our labels, ends itself when its time is over, and
is then removed by the engine.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gym.sandbox.limits import Host, clamp
from gym.sandbox.ownership import Ownership, network_id
from gym.sandbox.providers.docker_options import INTERNAL, DockerCreate, DockerIsolation
from gym.sandbox.spec import SandboxSpec, SandboxSpecError

_KEEP_ALIVE = 'ttl=$1; shift; if [ $# -gt 0 ]; then "$@" & fi; exec sleep "$ttl"'
"""Main process of every container: starts the spec's service, then counts down. With its end the container ends."""

_MIB = 1024 * 1024


def host_of(info: dict[str, Any]) -> Host:
    """What the engine's `/info` says about its host."""
    return Host(float(info.get("NCPU") or 0), int(info.get("MemTotal") or 0) // _MIB)


@dataclass(frozen=True)
class ContainerPlan:
    """The body for the engine, and what is worth remembering about it."""

    body: dict[str, Any]
    isolation: DockerIsolation
    ttl_s: float
    observations: dict[str, Any] = field(default_factory=dict[str, Any])


def isolation_of(spec: SandboxSpec, create: DockerCreate) -> DockerIsolation:
    """The block's isolation with what the spec sets on top; SandboxSpecError for unknown or malformed options."""
    base = {name: getattr(create, name) for name in DockerIsolation.model_fields}
    try:
        own = DockerIsolation.model_validate(spec.provider_options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(DockerIsolation.model_fields)
        raise SandboxSpecError(f"sandbox spec: provider_options.{where}: {first['msg'].lower()} (options of docker: {known})") from error
    merged = base | {name: getattr(own, name) for name in own.model_fields_set}
    if spec.network is not None:
        merged["network"] = spec.network
    return DockerIsolation(**merged)


def plan_container(spec: SandboxSpec, ownership: Ownership, create: DockerCreate, host: Host, metadata: dict[str, str]) -> ContainerPlan:
    """Everything the engine is told about one container; `metadata` is the block's default."""
    isolation = isolation_of(spec, create)
    ttl_s = spec.ttl_s or create.default_ttl_s
    limits, clamped = clamp(spec, host)
    host_config: dict[str, Any] = {
        "AutoRemove": True,
        "Init": create.use_init,
        "ReadonlyRootfs": isolation.read_only,
        "CapDrop": isolation.cap_drop,
        "CapAdd": isolation.cap_add,
        "SecurityOpt": isolation.security_opt,
        "Binds": isolation.volumes,
        "Tmpfs": isolation.tmpfs,
        "ExtraHosts": isolation.extra_hosts,
        # A chatty service must not fill the host's disk.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
    }
    if isolation.network == INTERNAL:
        host_config["NetworkMode"] = network_id(ownership.run_id)
        # Nobody is asked for names of the outside (older engines would ask on the container's behalf), and that is soon told.
        host_config |= {"Dns": ["127.0.0.1"], "DnsOptions": ["timeout:1", "attempts:1"]}
    elif isolation.network is not None:
        host_config["NetworkMode"] = isolation.network
    if isolation.pids_limit is not None:
        host_config["PidsLimit"] = isolation.pids_limit
    if create.apply_resource_limits:
        if limits.cpu is not None:
            host_config["NanoCpus"] = int(limits.cpu * 1e9)
        if limits.memory_mib is not None:
            host_config["Memory"] = host_config["MemorySwap"] = limits.memory_mib * _MIB
    if limits.gpu is not None:
        host_config["DeviceRequests"] = [{"Count": limits.gpu, "Capabilities": [["gpu"]]}]
    body: dict[str, Any] = {
        "Image": (spec.image or "").removeprefix("docker://"),
        "Entrypoint": ["/bin/sh", "-c", _KEEP_ALIVE, "nemo-gym"],
        "Cmd": [str(max(1, math.ceil(ttl_s))), *(spec.entrypoint or [])],
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": ownership.labels(ttl_s, metadata | spec.metadata),
        "HostConfig": host_config,
    }
    if spec.workdir is not None:
        body["WorkingDir"] = spec.workdir
    if spec.user is not None:
        body["User"] = spec.user
    observations: dict[str, Any] = {
        "ttl_s": ttl_s,
        "network": isolation.network or "default",
        "limits": limits.model_dump(exclude_none=True),
    }
    if clamped:
        observations["clamped"] = clamped
    if not create.apply_resource_limits:
        observations["limits_applied"] = False
    return ContainerPlan(body, isolation, ttl_s, observations)
