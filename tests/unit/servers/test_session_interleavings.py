"""Random interleavings of open, close, work, sweeps and failures, checked against what must always hold."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId
from gym.servers.sessions import Session, SessionRegistry

EPISODE = EpisodeId(rollout_id="r1")
IDS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("open"), IDS, st.sampled_from(["quick", "slow", "fails", "fails late"])),
    st.tuples(st.just("close"), IDS, st.just("")),
    st.tuples(st.just("once"), IDS, st.sampled_from(["x", "y"])),
    st.tuples(st.just("during"), IDS, st.just("")),
    st.tuples(st.just("sweep"), st.just(""), st.just("")),
    st.tuples(st.just("pass time"), st.just(""), st.sampled_from(["1", "60", "200"])),
    st.tuples(st.just("leave"), st.just(""), st.just("")),
    st.tuples(st.just("yield"), st.just(""), st.sampled_from(["1", "2", "5"])),
    st.tuples(st.just("releases fail"), st.just(""), st.sampled_from(["yes", "no"])),
)


class World:
    """A registry whose resources know whether they are held."""

    def __init__(self) -> None:
        self.now = 0.0
        self.registry: SessionRegistry[None] = SessionRegistry("session", ttl_seconds=100, receipt_seconds=50, clock=lambda: self.now)
        self.live: Counter[str] = Counter()
        self.released: Counter[int] = Counter()
        self.made = 0
        self.failing = False
        self.waiting: list[asyncio.Task[Any]] = []

    async def build(self, session: Session[None], how: str) -> str:
        self.made += 1
        number = self.made

        async def release() -> None:
            await asyncio.sleep(0)
            if self.failing:
                raise OSError("cannot")
            self.released[number] += 1
            self.live[session.id] -= 1

        session.on_release("it", release)
        self.live[session.id] += 1
        assert self.live[session.id] == 1, "a second resource under one id while the first is held"
        if how == "fails":
            raise ContractError(503, "no")
        for _ in range(3 if how != "quick" else 0):
            await asyncio.sleep(0)
        if how == "fails late":
            raise RuntimeError("no")
        return f"opened {number}"

    async def work(self, session: Session[None]) -> str:
        for _ in range(3):
            await asyncio.sleep(0)
            assert self.live[session.id] == 1, "work under a session whose resource is gone"
        return "done"

    def do(self, step: tuple[str, str, str]) -> None:
        what, name, detail = step
        registry = self.registry
        if what == "open":
            call = registry.open(Session(name, EPISODE, None), b"", lambda session: self.build(session, detail))
        elif what == "close":
            call = registry.close(name, EPISODE)
        elif what == "once":
            call = registry.once(name, detail.encode(), self.work)
        elif what == "during":
            call = registry.during(name, self.work)
        else:
            call = registry.sweep()
        self.waiting.append(asyncio.ensure_future(call))

    def check(self) -> None:
        """What holds at every moment."""
        assert all(count == 1 for count in self.released.values()), "released twice"
        for name, count in self.live.items():
            assert count in (0, 1)
            assert not count or name in self.registry._entries, "a live resource without an entry"

    async def play(self, steps: list[tuple[str, str, str]]) -> None:
        for step in steps:
            if step[0] == "pass time":
                self.now += float(step[2])
            elif step[0] == "leave":
                if self.waiting:
                    self.waiting[-1].cancel()
            elif step[0] == "yield":
                for _ in range(int(step[2])):
                    await asyncio.sleep(0)
                    self.check()
            elif step[0] == "releases fail":
                self.failing = step[2] == "yes"
            else:
                self.do(step)
            self.check()
        async with asyncio.timeout(5):
            for ended in await asyncio.gather(*self.waiting, return_exceptions=True):
                if isinstance(ended, BaseException) and not isinstance(ended, (ContractError, asyncio.CancelledError)):
                    assert str(ended) == "no", repr(ended)
            self.check()
            self.failing = False
            await self.registry.close_all()
        self.check()
        assert +self.live == Counter(), "something is held after the shutdown"
        assert len(self.registry) == 0
        assert sum(self.released.values()) == self.made


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_no_interleaving_releases_twice_or_loses_a_resource(steps: list[tuple[str, str, str]]) -> None:
    asyncio.run(World().play(steps))
