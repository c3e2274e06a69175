"""From an instance's description to a server object: importing implementations, nothing else.

`resources_servers/<name>/app.py` is the module `resources_servers.<name>.app` whichever root it lies
in: of several folders of one name, the one that the configuration found.
"""

import importlib
import inspect
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym.client import Transport
from gym.config.packages import implementation_package
from gym.config.schema import BASE_CONFIGS, Kind, ServerConfig
from gym.servers.auth import Credentials
from gym.servers.base import Server
from gym.servers.context import PeerInfo, ServerContext


class LoadError(Exception):
    """An implementation that cannot be made into a server; the message says which and why."""


@dataclass(frozen=True)
class InstanceSpec:
    """One instance, with all that it needs to run in whatever process: what a child is handed by file."""

    instance: str
    kind: Kind
    implementation: str
    directory: str
    config: dict[str, Any]
    run_id: str
    url: str
    state_dir: str
    token: str | None
    secret: str
    peers: dict[str, PeerInfo] = field(default_factory=dict[str, PeerInfo])
    sandbox_providers: dict[str, Any] = field(default_factory=dict[str, Any])
    unreachable: dict[str, str] = field(default_factory=dict[str, str])
    policy: dict[str, Any] = field(default_factory=dict[str, Any])
    keep_captures: bool = False
    cache_dir: str | None = None

    def to_json(self) -> bytes:
        """The spec as JSON; holds secrets."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> "InstanceSpec":
        """The inverse of `to_json`."""
        fields = orjson.loads(data)
        fields["peers"] = {name: PeerInfo(**info) for name, info in fields["peers"].items()}
        return cls(**fields)


def make_server(spec: InstanceSpec, transport: Transport) -> Server:
    """Import the implementation and make the server. Raises LoadError."""
    directory = Path(spec.directory)
    root = str(directory.parent.parent)
    if root not in sys.path:
        sys.path.append(root)  # for what several implementations of one root share
    package = implementation_package(spec.kind, spec.implementation, directory)
    entrypoint = str(spec.config.get("entrypoint", "app.py"))
    module = _import(f"{package}.{Path(entrypoint).stem}", spec)
    server_class = _server_class(module, spec)
    config_class = _config_class(directory, package, spec)
    context = ServerContext(
        instance=spec.instance,
        run_id=spec.run_id,
        url=spec.url,
        credentials=Credentials(spec.token, spec.secret),
        peers=spec.peers,
        transport=transport,
        state_dir=Path(spec.state_dir),
        sandbox_providers=spec.sandbox_providers,
        unreachable=spec.unreachable,
        keep_captures=spec.keep_captures,
        cache_dir=None if spec.cache_dir is None else Path(spec.cache_dir),
    )
    try:
        return server_class(config_class.model_validate(spec.config), context)
    except (TypeError, ValueError) as error:
        raise LoadError(f"{spec.instance}: cannot be set up: {error}") from error


def _import(name: str, spec: InstanceSpec) -> Any:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a server author's code
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
        raise LoadError(f"{spec.instance}: cannot import {name}: {type(error).__name__}: {error}{where}") from error


def _server_class(module: Any, spec: InstanceSpec) -> type[Server]:
    """The one class of the module that serves this kind."""
    found: list[type[Server]] = [
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Server) and value.__module__ == module.__name__ and value.kind == spec.kind
    ]
    if len(found) != 1:
        names = ", ".join(sorted(c.__name__ for c in found)) or "none"
        raise LoadError(f"{spec.instance}: {module.__file__} must define exactly one server of kind {spec.kind}, found {names}")
    return found[0]


def _config_class(directory: Path, package: str, spec: InstanceSpec) -> type[ServerConfig]:
    if not (directory / "config.py").is_file():
        return BASE_CONFIGS[spec.kind]
    return _import(f"{package}.config", spec).Config
