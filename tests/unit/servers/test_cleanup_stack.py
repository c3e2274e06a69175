"""Giving back at the end of an episode: in order, each within its own bound, whatever is cancelled."""

import asyncio
import time

import pytest

from gym.servers.cleanup import CleanupStack


class Things:
    """Things to give back, and the order in which they were."""

    def __init__(self, timeout: float = 0.1) -> None:
        self.stack = CleanupStack(timeout)
        self.order: list[str] = []

    def add(self, name: str, *, seconds: float = 0, failures: int = 0, hangs: bool = False) -> None:
        left = [failures]

        async def give_back() -> str:
            if hangs:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(seconds)
            if left[0]:
                left[0] -= 1
                self.order.append(f"{name} failed")
                raise OSError(f"{name} is stuck")
            self.order.append(name)
            return name

        self.stack.register(name, give_back)


async def test_the_last_registered_goes_first_and_a_failure_keeps_no_other() -> None:
    things = Things()
    things.add("resources")
    things.add("agent", failures=5)
    things.add("third")
    assert await things.stack.unwind() == ["agent: agent is stuck"]
    assert things.order == ["third", "agent failed", "resources"]


async def test_one_that_hangs_has_its_own_bound_and_the_rest_their_whole() -> None:
    things = Things(timeout=0.1)
    things.add("resources", seconds=0.08)
    things.add("agent", hangs=True)
    began = time.monotonic()
    assert await things.stack.unwind() == ["agent: no answer within 0.1 s"]
    assert things.order == ["resources"]
    assert 0.15 < time.monotonic() - began < 1


async def test_a_second_try_only_where_it_is_asked_for() -> None:
    things = Things()
    things.add("resources", failures=1)
    assert await things.stack.unwind(tries=2) == []
    assert things.order == ["resources failed", "resources"]
    assert await things.stack.unwind() == []
    assert things.order == ["resources failed", "resources"]


@pytest.mark.parametrize("cancels", [1, 2, 5])
async def test_cancelling_never_cuts_it_short(cancels: int) -> None:
    things = Things(timeout=1)
    things.add("resources", seconds=0.05)
    things.add("agent", seconds=0.05)
    unwinding = asyncio.ensure_future(things.stack.unwind())
    for _ in range(cancels):
        await asyncio.sleep(0.01)
        unwinding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unwinding
    assert things.order == ["agent", "resources"]


async def test_cancelling_the_episode_starts_it() -> None:
    things = Things()
    things.add("resources", seconds=0.02)

    async def episode() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await things.stack.unwind()

    running = asyncio.ensure_future(episode())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (running.cancelled(), things.order) == (True, ["resources"])


async def test_what_was_closed_early_is_not_closed_again() -> None:
    things = Things()
    things.add("first")
    handle = things.stack.register("second", lambda: asyncio.sleep(0, "answer"))
    assert await handle.close() == await handle.close() == "answer"
    assert await things.stack.unwind() == []
    assert things.order == ["first"]
