"""`--concurrency auto`: models of a known capacity, and what is found out about them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from typer.testing import CliRunner

from gym.cli.main import app
from gym.client import CallError
from gym.config.errors import UserError
from gym.rollouts import pace as pace_module
from gym.rollouts.gate import Gate
from gym.rollouts.options import concurrency_from
from gym.rollouts.pace import FIRST_LIMIT, Pace, Traffic, summed
from gym.runtime.listen import open_socket, url_of
from tests.unit.rollouts.conftest import Bench

CAPACITIES = [1, 3, 10, 40, 150]


class Model:
    """Fake: answers `capacity` calls at once within a second, and the others one behind the other; or turns those away."""

    def __init__(self, capacity: int, *, turns_away: bool = False, tokens: int = 0) -> None:
        self.capacity, self.turns_away, self.tokens = capacity, turns_away, tokens
        self.traffic = Traffic()
        self.now = 0.0

    def second(self, out: int, calls_each: float = 1.0) -> None:
        self.now += 1.0
        if self.turns_away and out > self.capacity:
            self.traffic.limited += out - self.capacity
        latency = 1.0 if self.turns_away else max(1.0, out / self.capacity)
        answered = int(min(out, self.capacity) * calls_each)
        self.traffic.calls += answered
        self.traffic.seconds += answered * latency
        self.traffic.tokens += answered * self.tokens


def follow(pace: Pace, model: Model, seconds: int) -> list[int]:
    """The limits over so many seconds, while there is enough to do."""
    limits: list[int] = []
    for _ in range(seconds):
        model.second(pace.limit)
        pace.step(model.now, model.traffic, out=pace.limit, waiting=0)
        limits.append(pace.limit)
    return limits


@pytest.mark.parametrize("tokens", [0, 700])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_it_grows_while_latency_holds_and_no_further(capacity: int, tokens: int) -> None:
    found = follow(Pace(4096), Model(capacity, tokens=tokens), 800)[400:]
    assert capacity <= min(found)
    if capacity >= FIRST_LIMIT:
        assert max(found) <= 3 * capacity
    assert sorted(found)[len(found) // 2] <= max(2.25 * capacity, 2 * FIRST_LIMIT)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_it_stays_about_the_capacity_of_a_model_that_turns_away(capacity: int) -> None:
    pace = Pace(4096)
    found = follow(pace, Model(capacity, turns_away=True), 800)[400:]
    assert max(found) <= 1.25 * capacity + 1
    assert min(found) >= capacity / 2 - 1
    assert pace.cuts > 0


def test_longer_answers_are_not_taken_for_a_busier_model() -> None:
    """The answers grow tenfold while the run goes on, and every token takes as long as before."""
    pace, model = Pace(256), Model(1000, tokens=100)
    for second in range(200):
        before = model.traffic.seconds, model.traffic.tokens
        model.second(pace.limit)
        longer = 1 + second / 20
        model.traffic.seconds = before[0] + (model.traffic.seconds - before[0]) * longer
        model.traffic.tokens = before[1] + int((model.traffic.tokens - before[1]) * longer)
        pace.step(model.now, model.traffic, out=pace.limit, waiting=0)
    assert pace.limit == 256


def test_a_limit_that_is_not_reached_is_not_raised() -> None:
    for out, waiting in ((2, 0), (FIRST_LIMIT, 1)):
        pace, model = Pace(64), Model(100)
        for _ in range(100):
            model.second(out)
            pace.step(model.now, model.traffic, out=out, waiting=waiting)
        assert pace.limit == FIRST_LIMIT


def test_one_cut_until_what_was_out_has_come_down_and_retry_after_is_kept() -> None:
    pace, traffic = Pace(64), Traffic()
    pace.limit = 32
    traffic.turned_away(10.0, 5.0)
    pace.step(10.0, traffic, out=32, waiting=0)
    assert (pace.limit, pace.shut_until) == (16, 15.0)
    for now in (11.0, 12.0, 16.0):  # the calls of those that are out still go on
        traffic.turned_away(now, 2.0)
        pace.step(now, traffic, out=30, waiting=0)
    assert (pace.limit, pace.cuts, pace.shut_until) == (16, 1, 18.0)
    pace.step(19.0, traffic, out=16, waiting=0)
    traffic.turned_away(20.0, None)
    pace.step(20.0, traffic, out=16, waiting=0)
    assert (pace.limit, pace.cuts) == (8, 2)


def test_what_was_before_the_run_says_nothing_about_it() -> None:
    pace, traffic = Pace(64), Traffic(calls=1000, seconds=9.0, limited=50)
    pace.begin(traffic.limited)
    pace.step(1.0, traffic, out=FIRST_LIMIT, waiting=0)
    pace.step(2.0, Traffic(calls=3, seconds=1.0), out=FIRST_LIMIT, waiting=0)  # a server was started anew
    assert (pace.limit, pace.cuts) == (FIRST_LIMIT, 0)
    assert summed([Traffic(1, 2.0, 3, 4, 5.0), Traffic(1, 1.0, 1, 1, 9.0)]) == Traffic(2, 3.0, 4, 5, 9.0)


async def test_a_gate_can_be_widened_narrowed_and_shut() -> None:
    gate = Gate(1)
    await gate.enter()
    second = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0.01)
    assert not second.done()
    gate.set(3, 0.0)
    await asyncio.wait_for(second, 1)
    gate.set(1, 0.0)
    assert gate.out == 2
    third = asyncio.ensure_future(gate.enter())
    gate.leave()
    await asyncio.sleep(0.01)
    assert not third.done()
    until = time.monotonic() + 0.1
    gate.set(1, until)
    gate.leave()
    await asyncio.wait_for(third, 1)
    assert time.monotonic() >= until


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "POLL_SECONDS", 0.02)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever latency a busy machine adds, it holds."""
    monkeypatch.setattr(pace_module, "TOLERANCE", 1e9)


@pytest.mark.usefixtures("quick", "patient")
async def test_a_collection_finds_the_capacity_of_its_servers(bench: Bench) -> None:
    """Environment servers that turn away what is too much; no model server tells anything."""
    bench.rows(1500)
    out: list[int] = []

    async def answer() -> Any:
        out.append(bench.dispatcher.out)
        if bench.dispatcher.out > 12:
            return CallError("full", kind="agent_request_failed", delivery="delivered", status=429, retry_after=0.02)
        await asyncio.sleep(0.02)
        return Bench.result()

    bench.script(lambda *_: answer())
    summary = await bench.collect(concurrency=256, adaptive=True)
    assert summary.exit_code == 0
    assert summary.coverage.attempts == 1500, "being turned away costs no attempt"
    later = sorted(out[len(out) // 2 :])
    assert 4 <= later[len(later) // 2] <= 16
    told = summary.as_dict()["concurrency"]
    assert (told["mode"], told["cuts"] > 0, told["limit"] <= 16) == ("auto", True, True)


@pytest.mark.usefixtures("quick")
async def test_a_collection_stops_growing_where_latency_rises(bench: Bench) -> None:
    bench.rows(1500)

    async def answer() -> Any:
        await asyncio.sleep(0.02 * max(1.0, bench.dispatcher.out / 4))
        return Bench.result()

    bench.script(lambda *_: answer())
    summary = await bench.collect(concurrency=1024, adaptive=True)
    assert summary.exit_code == 0
    assert summary.concurrency is not None
    assert FIRST_LIMIT < summary.concurrency["highest"] <= 128
    assert summary.concurrency["cuts"] == 0


@pytest.mark.usefixtures("quick", "patient")
async def test_failures_and_5xx_do_not_cut(bench: Bench) -> None:
    bench.rows(1200)

    def script(rollout_id: str, attempt: int, request: dict[str, Any]) -> Any:
        async def answer() -> Any:
            await asyncio.sleep(0.01)
            number = int(rollout_id.partition("-")[0])
            if attempt == 0 and number % 4 == 1:
                return CallError("broken", kind="agent_request_failed", delivery="delivered", status=500 + number % 5)
            return Bench.failure() if attempt == 0 and number % 4 == 2 else Bench.result()

        return answer()

    bench.script(script)
    summary = await bench.collect(concurrency=32, adaptive=True)
    assert summary.exit_code == 0
    assert summary.coverage.counted_failures == 600
    assert summary.concurrency == {"mode": "auto", "limit": 32, "highest": 32, "cuts": 0}
    assert bench.dispatcher.most_out == 32


async def test_another_concurrency_is_no_other_run(bench: Bench) -> None:
    bench.rows(30)
    bench.script(lambda rollout_id, *_: Bench.failure() if rollout_id == "3-0" else Bench.result())
    fixed = await bench.collect(concurrency=3, attempts=1)
    assert fixed.concurrency == {"mode": "fixed", "limit": 3}
    bench.script(lambda *_: Bench.result())
    again = await bench.collect(concurrency=8, adaptive=True, attempts=2, resume=True)
    assert (again.exit_code, again.past.changed if again.past else None) == (0, [])


@pytest.mark.parametrize(("text", "meant"), [("7", (7, False)), ("auto", (512, True)), ("auto:9", (9, True))])
def test_what_concurrency_says(text: str, meant: tuple[int, bool]) -> None:
    assert concurrency_from(text) == meant
    for wrong in ("", "auto:", "auto:x", "-1", "Auto"):
        with pytest.raises(UserError, match="'auto:N' for at most N"):
            concurrency_from(wrong)


class Endpoint:
    """Fake: a model behind an OpenAI-compatible endpoint that bears `capacity` calls at once, and turns others away."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.in_flight, self.turned_away = capacity, 0, 0
        self.seen: list[int] = []

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        if self.in_flight >= self.capacity:
            self.turned_away += 1
            return web.json_response({"error": {"message": "too many"}}, status=429, headers={"retry-after": "0.1"})
        self.in_flight += 1
        self.seen.append(self.in_flight)
        try:
            await asyncio.sleep(0.03)
        finally:
            self.in_flight -= 1
        text = {"type": "output_text", "text": "done", "annotations": []}
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return web.json_response({"id": "r", "object": "response", "status": "completed", "output": [message], "usage": usage})


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    """Answer in a thread of its own, since the command has its own loop."""
    import threading

    listener, loop, ready = open_socket("127.0.0.1", 0, "endpoint"), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        server = web.Application()
        server.router.add_post("/v1/responses", endpoint.answer)
        runner = web.AppRunner(server)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield f"{url_of(listener)}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "patient")
def test_a_run_finds_the_capacity_of_its_model(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through agent and model server, which try again by themselves what the endpoint turns away."""
    monkeypatch.setenv("GYM_STATE_DIR", str(tmp_path / "state"))
    endpoint = Endpoint(12)
    config = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
    with serving(endpoint) as url:
        options = [f"+policy_base_url={url}", "+policy_api_key=x", "+policy_model_name=m", "--num-repeats", "120"]
        run = ["eval", "run", "--config", config, "--model-type", "openai_model", *options]
        ended = CliRunner().invoke(app, [*run, "--concurrency", "auto:200", "--json", "--output", str(tmp_path / "out.jsonl")])
    assert ended.exit_code == 0, ended.output
    done = orjson.loads(ended.stdout.splitlines()[-1])
    assert done["coverage"]["measured"] == done["coverage"]["attempts"] > 300
    assert done["concurrency"]["cuts"] > 0
    assert endpoint.capacity / 2 <= done["concurrency"]["limit"] <= 2 * endpoint.capacity
    later = sorted(endpoint.seen[len(endpoint.seen) // 2 :])
    assert later[len(later) // 2] >= endpoint.capacity / 4
    assert endpoint.turned_away < len(endpoint.seen) / 2
