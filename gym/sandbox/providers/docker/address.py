"""Where the engine listens: from options, the environment, Docker's own context, or the usual place.

Leaves out `ssh://`: a forwarded socket does the same without a second transport.
"""

import hashlib
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from gym.sandbox.spec import SandboxError

DEFAULT_HOST = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class Address:
    """One engine: either a Unix socket, or a host and port with or without TLS."""

    text: str
    socket_path: str | None = None
    host: str = "docker"
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def base_url(self) -> str:
        """The prefix of every request."""
        if self.socket_path is not None:
            return "http://docker"
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


def engine_address(host: str | None = None, cert_path: str | None = None, environ: Mapping[str, str] = os.environ) -> Address:
    """The address to use; SandboxError if it cannot be understood."""
    text = host or environ.get("DOCKER_HOST") or _context_host(docker_config_dir(environ), environ) or DEFAULT_HOST
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path:
        return Address(text, socket_path=parts.path)
    if parts.scheme in ("tcp", "http", "https") and parts.hostname:
        certs = cert_path or (environ.get("DOCKER_CERT_PATH") if environ.get("DOCKER_TLS_VERIFY") else None)
        tls = _tls(Path(certs)) if certs else ssl.create_default_context() if parts.scheme == "https" else None
        return Address(text, host=parts.hostname, port=parts.port or (2376 if tls else 2375), tls=tls)
    hint = "; forward its socket first: ssh -NL /tmp/docker.sock:/var/run/docker.sock HOST" if parts.scheme == "ssh" else ""
    raise SandboxError(f"cannot use {text!r} as a Docker engine: give unix:///path or tcp://host:port{hint}")


def docker_config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Docker's own client keeps its configuration."""
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def read_docker_config(directory: Path) -> dict[str, Any]:
    """Docker's own `config.json`, or nothing if there is none that can be read."""
    try:
        content = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _context_host(directory: Path, environ: Mapping[str, str]) -> str | None:
    name = environ.get("DOCKER_CONTEXT") or read_docker_config(directory).get("currentContext")
    if not isinstance(name, str) or name in ("", "default"):
        return None
    meta = directory / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    try:
        return str(json.loads(meta.read_bytes())["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SandboxError(
            f"Docker's context {name!r} cannot be read from {meta}: {type(error).__name__}; set DOCKER_HOST instead"
        ) from error


def _tls(folder: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
    except (OSError, ssl.SSLError) as error:
        raise SandboxError(f"cannot use the TLS files ca.pem, cert.pem and key.pem in {folder}: {error}") from error
    return context
