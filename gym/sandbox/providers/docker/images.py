"""Makes sure that an image is there: pulled once for all who wait for it, with bounded retries.

Invariant: a quota of the registry ends as `provider_quota_exhausted`, and an image that does not
exist is not asked for again and again.
"""

import asyncio
import logging
import random
from typing import Any, Literal, cast

import orjson

from gym.sandbox.providers.docker.credentials import registry_auth
from gym.sandbox.providers.docker.engine import Engine, EngineError, name_in_path
from gym.sandbox.spec import SandboxError

log = logging.getLogger(__name__)

_QUOTA = ("toomanyrequests", "too many requests", "pull rate limit", "429")
_FINAL = ("manifest unknown", "not found", "does not exist", "denied", "unauthorized", "invalid reference", "no basic auth")
_FIRST_WAIT_S = 2.0


class Images:
    """The images of one engine."""

    def __init__(self, engine: Engine, *, attempts: int, timeout_s: float, first_wait_s: float = _FIRST_WAIT_S) -> None:
        self._engine = engine
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._first_wait_s = first_wait_s
        self._pulling: dict[str, asyncio.Lock] = {}

    async def ensure(self, image: str, pull: Literal["missing", "always", "never"]) -> dict[str, Any]:
        """What the engine knows about `image`, which is there afterwards; SandboxError otherwise."""
        if pull != "always" and (known := await self._inspect(image)) is not None:
            return known
        if pull == "never":
            raise SandboxError(f"image {image!r} is not there and the provider's create.pull is 'never': build or pull it first")
        async with self._pulling.setdefault(image, asyncio.Lock()):
            if pull == "missing" and (known := await self._inspect(image)) is not None:
                return known
            await self._pull(image)
        known = await self._inspect(image)
        if known is None:
            raise SandboxError(f"image {image!r} is not there although its pull succeeded")
        return known

    async def _inspect(self, image: str) -> dict[str, Any] | None:
        try:
            return await self._engine.json("GET", f"/images/{name_in_path(image)}/json")
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def _pull(self, image: str) -> None:
        params = {"fromImage": image} if "@" in image or ":" in image.rsplit("/", 1)[-1] else {"fromImage": image, "tag": "latest"}
        auth = await registry_auth(image)
        headers = {"X-Registry-Auth": auth} if auth else {}
        for attempt in range(1, self._attempts + 1):
            failure = await self._pull_once(params, headers)
            if failure is None:
                return
            low = failure.lower()
            quota = any(word in low for word in _QUOTA)
            if attempt == self._attempts or (not quota and any(word in low for word in _FINAL)):
                kind = "provider_quota_exhausted" if quota else "provider_unavailable"
                raise SandboxError(f"image {image!r} could not be pulled ({attempt} of {self._attempts} tries): {failure}", kind)
            wait = self._first_wait_s * 2 ** (attempt - 1) * random.uniform(0.5, 1.5) * (5 if quota else 1)
            log.warning("pull of image %s failed, next try in %.0f s: %s", image, wait, failure)
            await asyncio.sleep(wait)

    async def _pull_once(self, params: dict[str, str], headers: dict[str, str]) -> str | None:
        """None if it worked, else why not: the engine reports most failures inside a good reply."""
        try:
            content, _ = await self._engine.request("POST", "/images/create", params=params, headers=headers, timeout_s=self._timeout_s)
        except EngineError as error:
            if error.unreachable:
                raise
            return str(error)
        for line in content.splitlines():
            try:
                event = orjson.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "error" in event:
                return str(cast("dict[str, Any]", event)["error"])
        return None
