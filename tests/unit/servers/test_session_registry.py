"""The session registry: one release for each resource, whatever order things happen in."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId
from gym.servers import sessions as module
from gym.servers.sessions import Session, SessionRegistry

EPISODE = EpisodeId(rollout_id="r1")


class Clock:
    """Time that passes when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A registry with a resource for each session, counted."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        options = {"ttl_seconds": 100, "receipt_seconds": 10, "clock": self.clock, **options}
        self.registry: SessionRegistry[str] = SessionRegistry("test session", **options)
        self.held: list[str] = []
        self.released: list[str] = []
        self.builds = 0
        self.release_error: Exception | None = None

    async def open(self, name: str = "s", body: bytes = b"body", work: Callable[[], Awaitable[None]] | None = None) -> str:
        """Open a session that holds a resource of its name."""
        session: Session[str] = Session(name, EPISODE, None)

        async def build(opened: Session[str]) -> str:
            self.builds += 1

            async def release() -> None:
                await asyncio.sleep(0)
                if self.release_error is not None:
                    raise self.release_error
                self.released.append(name)

            opened.on_release("the thing", release)
            self.held.append(name)
            if work is not None:
                await work()
            opened.state = name
            return f"opened {name}"

        return await self.registry.open(session, body, build)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def status_of(awaitable: Awaitable[Any]) -> tuple[int, str]:
    """Status and kind of the ContractError that this ends with."""
    with pytest.raises(ContractError) as caught:
        await awaitable
    return caught.value.status, caught.value.kind


async def test_the_same_open_joins_a_running_one_and_repeats_a_finished_one(bench: Bench) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    first, second = asyncio.ensure_future(bench.open(work=wait)), asyncio.ensure_future(bench.open())
    await asyncio.sleep(0.01)
    gate.set()
    assert await first == await second == await bench.open() == "opened s"
    assert bench.builds == 1
    assert await status_of(bench.open(body=b"other")) == (409, "protocol_violation")


async def test_closing_releases_once_and_is_repeated_from_the_receipt(bench: Bench) -> None:
    await bench.open()
    await asyncio.gather(*(bench.registry.close("s", EPISODE) for _ in range(5)))
    await bench.registry.close("s", EPISODE)
    assert bench.released == ["s"]
    assert len(bench.registry) == 0
    assert (await status_of(bench.open()))[0] == 409
    assert await status_of(bench.registry.close("s", EpisodeId(rollout_id="other"))) == (409, "protocol_violation")


async def test_a_close_of_an_unknown_id_fences_it_until_the_fence_expires(bench: Bench) -> None:
    assert await bench.registry.close("s", EPISODE) is None
    assert (await status_of(bench.open()))[0] == 409
    assert bench.builds == 0
    bench.clock.now += 11
    await bench.registry.sweep()
    assert await bench.open() == "opened s"


async def test_a_close_of_another_episode_is_refused_and_changes_nothing(bench: Bench) -> None:
    await bench.open()
    assert (await status_of(bench.registry.close("s", EpisodeId(rollout_id="r1", attempt=1))))[0] == 409
    assert bench.registry.get("s").id == "s"
    assert bench.released == []


async def test_a_release_that_fails_is_an_error_and_can_be_repeated(bench: Bench) -> None:
    await bench.open()
    bench.release_error = RuntimeError("busy")
    assert await status_of(bench.registry.close("s", EPISODE)) == (500, "session_release_failed")
    assert len(bench.registry) == 1
    assert (await status_of(bench.open()))[0] == 409
    bench.release_error = None
    await bench.registry.close("s", EPISODE)
    assert (bench.released, len(bench.registry)) == (["s"], 0)


async def test_the_sweeper_repeats_a_failed_close_long_before_the_session_expires(bench: Bench) -> None:
    await bench.open()
    bench.release_error = RuntimeError("busy")
    await status_of(bench.registry.close("s", EPISODE))
    await bench.registry.sweep()
    assert len(bench.registry) == 1
    bench.release_error = None
    await bench.registry.sweep()
    assert (bench.released, len(bench.registry)) == (["s"], 0)
    assert not bench.registry.expired_session("s")


async def test_one_release_that_fails_does_not_keep_the_others(bench: Bench) -> None:
    session: Session[str] = Session("s", EPISODE, None)
    released: list[str] = []
    broken = [True]

    async def build(opened: Session[str]) -> None:
        async def fails() -> None:
            if broken[0]:
                raise OSError("no")
            released.append("second")

        async def works(what: str) -> None:
            released.append(what)

        opened.on_release("first", lambda: works("first"))
        opened.on_release("second", fails)
        opened.on_release("third", lambda: works("third"))

    await bench.registry.open(session, b"", build)
    assert (await status_of(bench.registry.close("s", EPISODE)))[0] == 500
    assert released == ["third", "first"]
    broken[0] = False
    await bench.registry.close("s", EPISODE)
    assert released == ["third", "first", "second"]


async def test_an_opening_that_fails_is_released_and_forgotten(bench: Bench) -> None:
    async def fail() -> None:
        raise ContractError(503, "no room", kind="provider_unavailable")

    assert await status_of(bench.open(work=fail)) == (503, "provider_unavailable")
    assert (bench.released, len(bench.registry)) == (["s"], 0)
    assert await bench.open() == "opened s"


async def test_an_opening_whose_release_fails_too_stays_for_closing_only(bench: Bench) -> None:
    async def fail() -> None:
        raise ContractError(503, "no room", kind="provider_unavailable")

    bench.release_error = RuntimeError("busy")
    assert await status_of(bench.open(work=fail)) == (503, "provider_unavailable")
    assert len(bench.registry) == 1
    assert (await status_of(bench.open()))[0] == 409
    bench.release_error = None
    await bench.registry.close("s", EPISODE)
    assert (bench.released, len(bench.registry)) == (["s"], 0)


async def test_a_close_during_opening_cancels_it_and_releases_what_it_had(bench: Bench) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    opening = asyncio.ensure_future(bench.open(work=hang))
    await asyncio.sleep(0.01)
    await bench.registry.close("s", EPISODE)
    assert await status_of(opening) == (409, "cancelled")
    assert (bench.held, bench.released, len(bench.registry)) == (["s"], ["s"], 0)
    assert (await status_of(bench.open()))[0] == 409


async def test_a_close_before_the_opening_has_begun(bench: Bench) -> None:
    opened, _ = await asyncio.gather(bench.open(), bench.registry.close("s", EPISODE), return_exceptions=True)
    assert opened == "opened s" or isinstance(opened, ContractError)
    assert sorted(bench.held) == sorted(bench.released)
    assert len(bench.registry) == 0


async def test_work_runs_once_for_each_key_and_is_replayed_also_after_close(bench: Bench) -> None:
    runs: list[int] = []

    async def work(session: Session[str]) -> int:
        await asyncio.sleep(0.01)
        runs.append(1)
        return len(runs)

    await bench.open()
    assert await asyncio.gather(bench.registry.once("s", b"a", work), bench.registry.once("s", b"a", work)) == [1, 1]
    assert await bench.registry.once("s", b"b", work) == 2
    await bench.registry.close("s", EPISODE)
    assert await bench.registry.once("s", b"a", work) == 1
    assert await status_of(bench.registry.once("s", b"c", work)) == (409, "session_lost")
    bench.clock.now += 11
    await bench.registry.sweep()
    assert await status_of(bench.registry.once("s", b"a", work)) == (410, "session_lost")


def test_a_session_that_was_lost_with_its_server_is_no_reason_to_give_up(bench: Bench) -> None:
    with pytest.raises(ContractError) as caught:
        bench.registry.get("of-a-server-that-was-killed")
    assert (caught.value.status, caught.value.kind, caught.value.terminal) == (410, "session_lost", False)


async def test_a_result_is_replayed_while_the_close_runs_and_after_it_failed(bench: Bench) -> None:
    async def work(session: Session[str]) -> str:
        return "verdict"

    await bench.open()
    await bench.registry.once("s", b"a", work)
    bench.release_error = RuntimeError("busy")
    closing = asyncio.ensure_future(bench.registry.close("s", EPISODE))
    await asyncio.sleep(0)
    assert await bench.registry.once("s", b"a", work) == "verdict"
    await status_of(closing)
    assert await bench.registry.once("s", b"a", work) == "verdict"
    assert await status_of(bench.registry.once("s", b"b", work)) == (409, "session_lost")


async def test_work_that_failed_can_be_repeated(bench: Bench) -> None:
    tries: list[int] = []

    async def work(session: Session[str]) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("first")
        return "second"

    await bench.open()
    with pytest.raises(ValueError, match="first"):
        await bench.registry.once("s", b"a", work)
    assert await bench.registry.once("s", b"a", work) == "second"


async def test_a_waiter_that_goes_away_cancels_nothing(bench: Bench) -> None:
    gate = asyncio.Event()

    async def work(session: Session[str]) -> str:
        await gate.wait()
        return "done"

    opening = asyncio.ensure_future(bench.open(work=lambda: asyncio.sleep(0.02)))
    await asyncio.sleep(0.005)
    opening.cancel()
    assert await bench.open() == "opened s"
    waiter = asyncio.ensure_future(bench.registry.once("s", b"a", work))
    await asyncio.sleep(0.005)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    other = asyncio.ensure_future(bench.registry.once("s", b"a", work))
    await asyncio.sleep(0)
    gate.set()
    assert await other == "done"
    assert bench.builds == 1


@pytest.mark.parametrize("how", ["once", "during"])
async def test_a_close_cancels_running_work_before_it_releases(bench: Bench, how: str) -> None:
    order: list[str] = []

    async def work(session: Session[str]) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.01)
            order.append(f"stopped, {len(bench.released)} released")

    await bench.open()
    calling = bench.registry.once("s", b"a", work) if how == "once" else bench.registry.during("s", work)
    running = asyncio.ensure_future(calling)
    await asyncio.sleep(0.005)
    await bench.registry.close("s", EPISODE)
    assert await status_of(running) == (409, "cancelled")
    assert (order, bench.released) == (["stopped, 0 released"], ["s"])


async def test_the_sweeper_closes_what_expired_and_says_so() -> None:
    finished: list[str] = []

    async def finish(session: Session[str]) -> str:
        finished.append(session.id)
        return "report"

    bench = Bench(finish=finish)
    await bench.open("old")
    bench.clock.now += 60
    await bench.open("new")
    bench.clock.now += 41
    await bench.registry.sweep()
    assert (bench.released, finished) == (["old"], ["old"])
    assert bench.registry.expired_session("old")
    assert not bench.registry.expired_session("new")
    assert await bench.registry.close("old", EPISODE) == "report"


async def test_a_release_that_hangs_holds_up_neither_the_sweeper_nor_the_shutdown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(module, "SHUTDOWN_SECONDS", 0.05)

    async def hang(opened: Session[str]) -> None:
        async def never() -> None:
            await asyncio.get_running_loop().create_future()

        opened.on_release("a thing that hangs", never)

    await bench.registry.open(Session("hangs", EPISODE, None), b"", hang)
    await bench.open("fine")
    bench.clock.now += 101
    await bench.registry.sweep()
    assert bench.released == ["fine"]
    await bench.open("late")
    bench.clock.now += 101
    await bench.registry.sweep()
    assert bench.released == ["fine", "late"]
    await bench.registry.close_all()
    await asyncio.sleep(0)


async def test_the_sweeper_needs_no_request() -> None:
    bench = Bench()
    bench.registry._ttl = 0.05
    sweeper = asyncio.ensure_future(bench.registry.sweep_forever())
    await bench.open()
    bench.clock.now += 1
    async with asyncio.timeout(2):
        while not bench.released:  # noqa: ASYNC110 - the registry has no event for it
            await asyncio.sleep(0.01)
    sweeper.cancel()
    await asyncio.gather(sweeper, return_exceptions=True)


async def test_a_finish_that_fails_is_a_failed_close_and_is_repeated() -> None:
    tries: list[int] = []

    async def finish(session: Session[str]) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("harness")
        return "report"

    bench = Bench(finish=finish)
    await bench.open()
    assert await status_of(bench.registry.close("s", EPISODE)) == (500, "session_release_failed")
    assert bench.released == []
    assert await bench.registry.close("s", EPISODE) == "report"
    assert await bench.registry.close("s", EPISODE) == "report"
    assert (len(tries), bench.released) == (2, ["s"])


async def test_finish_runs_for_a_half_opened_session_only_if_there_is_a_state() -> None:
    finished: list[str] = []

    async def finish(session: Session[str]) -> None:
        finished.append(session.state)

    bench = Bench(finish=finish)

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    opening = asyncio.ensure_future(bench.open(work=hang))
    await asyncio.sleep(0.005)
    await bench.registry.close("s", EPISODE)
    await status_of(opening)
    assert (finished, bench.released) == ([], ["s"])


async def test_shutdown_closes_everything_and_opens_nothing_more(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        await bench.open(name)
    await bench.registry.close_all()
    assert sorted(bench.released) == ["a", "b", "c"]
    assert await status_of(bench.open("d")) == (503, "shutdown")


async def test_receipts_are_forgotten(bench: Bench) -> None:
    for index in range(200):
        await bench.open(str(index))
        await bench.registry.close(str(index), EPISODE)
        bench.clock.now += 1
        await bench.registry.sweep()
    assert len(bench.registry._receipts) <= 11


async def test_nothing_is_said_of_failures_that_nobody_waited_for(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(session: Session[str]) -> None:
        await asyncio.sleep(0.005)
        raise RuntimeError("nobody listens")

    await bench.open()
    waiter = asyncio.ensure_future(bench.registry.once("s", b"a", fail))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.sleep(0.02)
    gc.collect()
    assert "never retrieved" not in caplog.text
