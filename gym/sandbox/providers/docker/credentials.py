"""The user's registry credentials, read where Docker's own client keeps them.

They go to the engine in a request header and nowhere else: never to a log, a label or a sandbox.
"""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any, cast

from gym.sandbox.providers.docker.address import docker_config_dir, read_docker_config

_HUB = "https://index.docker.io/v1/"
_HELPER_BOUND_S = 20


def registry_of(image: str) -> str:
    """The registry that `image` names: the part before the first slash if it looks like a host, else Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


async def registry_auth(image: str, directory: Path | None = None) -> str | None:
    """The value of `X-Registry-Auth` for `image`, or None if the user is not logged in to its registry."""
    registry = registry_of(image)
    server = _HUB if registry == "docker.io" else registry
    config = read_docker_config(directory or docker_config_dir())
    helper = _table(config, "credHelpers").get(registry) or config.get("credsStore")
    found = await _ask_helper(str(helper), server) if helper else _stored(_table(config, "auths"), server)
    if found is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(found | {"serveraddress": server}).encode()).decode()


def _table(config: dict[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _stored(auths: dict[str, Any], server: str) -> dict[str, str] | None:
    entry = _table(auths, server) or _table(auths, f"https://{server}")
    if entry.get("identitytoken"):
        return {"identitytoken": str(entry["identitytoken"])}
    try:
        user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
    except (KeyError, ValueError):
        return None
    return {"username": user, "password": password}


async def _ask_helper(helper: str, server: str) -> dict[str, str] | None:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", helper):
        return None
    try:
        child = await asyncio.create_subprocess_exec(
            f"docker-credential-{helper}",
            "get",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_HELPER_BOUND_S):
            out, _ = await child.communicate(server.encode())
        answer = json.loads(out)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (TimeoutError, ValueError, LookupError, TypeError):
        return None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return {"identitytoken": secret} if user == "<token>" else {"username": user, "password": secret}
