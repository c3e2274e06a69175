"""Two hundred sandboxes at once: all are made, at the pace that is set, and all are gone again."""

import asyncio
import time
from pathlib import Path

import pytest

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.leases import LeaseBook, LeaseFolder
from gym.sandbox.ownership import Ownership
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec
from tests.integration.docker_proxy import docker_proxy

pytestmark = [pytest.mark.docker, pytest.mark.slow]

IMAGE = "gym-base:bookworm"
MANY = 200


async def test_two_hundred_at_once(docker_run_id: str, tmp_path: Path) -> None:
    create = {"network": "none", "pull": "never", "use_init": False, "rate_per_second": 20, "burst": 5, "concurrency": 16}
    with docker_proxy(tmp_path / "docker.sock") as proxy:
        provider = provider_from_block("sandbox", {"docker": {"host": proxy.host, "create": create}})
        (tmp_path / "run").mkdir()
        folder = LeaseFolder(tmp_path / "run")
        book = LeaseBook(folder.book_path("box"))
        running = most = 0

        async def one() -> None:
            nonlocal running, most
            box = await OwnedSandbox.start(
                provider, SandboxSpec(image=IMAGE, ttl_s=600), Ownership(docker_run_id, "box"), leases=book.at("s")
            )
            running += 1
            most = max(most, running)
            await box.stop()
            running -= 1

        began = time.monotonic()
        await asyncio.gather(*(one() for _ in range(MANY)))
        took = time.monotonic() - began
        assert took >= (MANY - 5) / 20 * 0.8, "no faster than its pace, jitter aside"
        assert sum("containers/create" in request for request in proxy.requests) == MANY
        assert await provider.find(run_id=docker_run_id) == []
        assert folder.owed() == {}
        book.close()
        await provider.aclose()
    print(f"{MANY} sandboxes made and removed in {took:.1f} s")
