"""What is known of a container's memory, from an engine of our own that tells events when it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from gym.sandbox.providers.docker.address import engine_address
from gym.sandbox.providers.docker.engine import Engine
from gym.sandbox.providers.docker.memory import MemoryWatch
from gym.sandbox.providers.docker.provider import DockerHandle, DockerProvider
from gym.sandbox.providers.docker_options import DockerOptions
from gym.sandbox.spec import SandboxGoneError


class TellingEngine:
    """An engine whose containers are all gone, and whose events come from `tell`."""

    def __init__(self) -> None:
        self.listeners: list[web.StreamResponse] = []
        self.over = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/_ping":
            return web.Response(text="OK", headers={"Api-Version": "1.41"})
        if request.path.endswith("/events"):
            stream = web.StreamResponse()
            await stream.prepare(request)
            self.listeners.append(stream)
            await self.over.wait()
            return stream
        return web.json_response({"message": "No such container"}, status=404)

    async def tell(self, action: str, name: str, time: int = 100) -> None:
        event = {"Action": action, "time": time, "Actor": {"Attributes": {"name": name}}}
        await self.listeners[-1].write(json.dumps(event).encode() + b"\n")

    async def hang_up(self) -> None:
        self.over.set()
        self.over = asyncio.Event()


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[TellingEngine]:
    engine = TellingEngine()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "e.sock")).start()
    yield engine
    await engine.hang_up()
    await runner.cleanup()


@pytest.fixture
async def watch(telling: TellingEngine, tmp_path: Path) -> AsyncIterator[MemoryWatch]:
    engine = Engine(engine_address(f"unix://{tmp_path}/e.sock"), 5)
    made = MemoryWatch(engine)
    await made.add("limited")
    yield made
    await made.aclose()
    await engine.aclose()


async def test_a_kill_that_is_told_late_is_waited_for_where_it_is_probable(telling: TellingEngine, watch: MemoryWatch) -> None:
    assert not await watch.killed("limited", 0, probable=False)
    asking = asyncio.ensure_future(watch.killed("limited", 0, probable=True))
    await asyncio.sleep(0.05)
    await telling.tell("oom", "another")
    await telling.tell("oom", "limited")
    assert await asking
    assert not await watch.killed("limited", 1, probable=True), "that was before"
    assert not await watch.killed("another", 0, probable=True), "it has no limit"


@pytest.mark.parametrize(("died_after", "of_memory"), [(0, True), (2, True), (60, False)])
async def test_a_container_that_ends_with_its_memory_is_told_from_one_that_ends_later(
    telling: TellingEngine, watch: MemoryWatch, died_after: int, of_memory: bool
) -> None:
    await telling.tell("oom", "limited", 100)
    await telling.tell("die", "limited", 100 + died_after)
    await telling.tell("oom", "limited", 900)
    assert await watch.killed("limited", 1, probable=True)
    assert watch.ended("limited") is of_memory
    watch.forget("limited")
    assert not watch.ended("limited")


async def test_an_engine_that_hangs_up_is_listened_to_again(
    telling: TellingEngine, watch: MemoryWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gym.sandbox.providers.docker.memory._AGAIN_S", 0.01)
    await telling.hang_up()
    async with asyncio.timeout(5):
        while len(telling.listeners) < 2:  # noqa: ASYNC110 - another's doing
            await asyncio.sleep(0.01)
    await telling.tell("oom", "limited")
    assert await watch.killed("limited", 0, probable=True)


async def test_a_sandbox_that_died_for_want_of_memory_says_so(telling: TellingEngine, tmp_path: Path) -> None:
    provider = DockerProvider(DockerOptions(host=f"unix://{tmp_path}/e.sock"))
    box = DockerHandle("limited", "/")
    with pytest.raises(SandboxGoneError) as gone:
        await provider.download(box, "/x")
    assert gone.value.kind == "session_lost"
    await provider._memory.add("limited")
    await telling.tell("oom", "limited")
    await telling.tell("die", "limited")
    assert await provider._memory.killed("limited", 0, probable=True)
    while not provider._memory.ended("limited"):  # noqa: ASYNC110 - told in the next line
        await asyncio.sleep(0.01)
    for move in (provider.download(box, "/x"), provider.upload(box, "/x", b"y")):
        with pytest.raises(SandboxGoneError, match="it ran out of memory") as gone:
            await move
        assert gone.value.kind == "provider_oom_killed"
    result = await provider.exec(box, "true")
    assert (result.error_type, result.oom_killed, result.failure_kind) == ("sandbox", True, "provider_oom_killed")
    assert "it ran out of memory" in result.stderr
    await provider.aclose()
