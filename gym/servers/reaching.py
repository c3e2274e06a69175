"""Checks from inside sandboxes, each made once: what an agent keeps of them.

Invariant: of several sessions that need the same check one makes it, and the others wait for its outcome. A
failure stands for half a minute, so that a thousand episodes do not each wait for a firewall; then it is tried anew.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Hashable

from gym.protocol.errors import ContractError
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.reach import ReachError, check_reach
from gym.sandbox.spec import SandboxError

log = logging.getLogger("gym.servers")

RETRY_SECONDS = 30.0


class ReachChecks:
    """The checks of one agent."""

    def __init__(self, retry_seconds: float = RETRY_SECONDS) -> None:
        self._retry_seconds = retry_seconds
        self._locks: defaultdict[Hashable, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._reached: set[Hashable] = set()
        self._failed: dict[Hashable, tuple[float, str]] = {}
        """When, and what was said."""

    async def check(self, block: str, url: str, sandbox: BorrowedSandbox) -> None:
        """Make sure that sandboxes of provider `block` reach `url`. Raises ContractError, terminal if they do not."""
        key = (block, url)
        async with self._locks[key]:
            if key in self._reached:
                return
            since, said = self._failed.get(key, (-self._retry_seconds, ""))
            if time.monotonic() - since >= self._retry_seconds:
                said = await self._try(key, url, sandbox)
        if said:
            raise ContractError(502, said, kind="transport_unreachable", terminal=True)

    async def _try(self, key: Hashable, url: str, sandbox: BorrowedSandbox) -> str:
        """What is wrong, or nothing."""
        self._failed.pop(key, None)
        try:
            (reached,) = await check_reach(sandbox, [url])
        except ReachError as error:
            self._failed[key] = (time.monotonic(), str(error))
            return str(error)
        except SandboxError as error:
            raise ContractError(503, str(error), kind=error.kind, terminal=False) from error
        if reached.tool:
            self._reached.add(key)
            log.info("sandbox %s reaches %s (%s, %.3f s)", sandbox.sandbox_id, url, reached.tool, reached.seconds)
        else:
            log.warning("sandbox %s has nothing to try with whether it reaches %s, so that is not known", sandbox.sandbox_id, url)
        return ""
