"""Owner and borrower, and cleanup that cancellation cannot cut short."""

import asyncio
from typing import Any, cast

import pytest

from gym.sandbox.cleanup import finish
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.provider import Provider, SandboxHandle
from gym.sandbox.spec import SandboxError


class StubbornProvider:
    """Its first stop fails, its second is slow, and it counts."""

    name = "stubborn"

    def __init__(self) -> None:
        self.closes = 0
        self.ended = False

    async def close(self, handle: SandboxHandle) -> None:
        self.closes += 1
        if self.closes == 1:
            raise SandboxError("not now", "session_release_failed")
        await asyncio.sleep(0.05)
        self.ended = True


async def test_a_failed_stop_can_be_tried_again_and_a_cancelled_one_ends_first() -> None:
    provider = StubbornProvider()
    box = OwnedSandbox(cast(Provider, provider), SandboxHandle("nemo-gym-00000000", "/"))
    with pytest.raises(SandboxError, match="not now"):
        await box.stop()
    stopping = asyncio.create_task(box.stop())
    await asyncio.sleep(0.01)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert provider.ended


async def test_a_stop_after_success_asks_nobody() -> None:
    provider = StubbornProvider()
    provider.closes = 1
    box = OwnedSandbox(cast(Provider, provider), SandboxHandle("nemo-gym-00000000", "/"))
    await box.stop()
    await box.stop()
    assert provider.closes == 2


async def _work(log: list[str], result: Any, seconds: float = 0.05) -> Any:
    await asyncio.sleep(seconds)
    log.append("done")
    if isinstance(result, Exception):
        raise result
    return result


async def test_finish_gives_results_errors_and_its_bound() -> None:
    log: list[str] = []
    assert await finish(_work(log, 5), 1) == 5
    with pytest.raises(KeyError):
        await finish(_work(log, KeyError("x")), 1)
    with pytest.raises(TimeoutError):
        await finish(_work(log, 5, seconds=10), 0.02)
    assert log == ["done", "done"]


@pytest.mark.parametrize("result", [5, KeyError("x")])
async def test_finish_delivers_a_cancellation_afterwards(result: Any) -> None:
    log: list[str] = []
    task = asyncio.create_task(finish(_work(log, result), 1))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["done"]
