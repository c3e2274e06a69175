"""One episode of `single_agent_turn` through real servers, in one process and in four: order, limits, cleanup."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gym.client import CallError
from gym.config import load
from gym.runtime.launch import launch
from gym.runtime.prepare import Running
from tests.integration.conftest import CONFIG, ROOTS, GymRuns, run_body

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Bench:
    """A run that is up, and what its servers wrote down."""

    def __init__(self, running: Running, runs: GymRuns) -> None:
        self.running, self.runs = running, runs
        self._number = 0

    async def post(self, body: Any, server: str = "env") -> dict[str, Any]:
        """POST to `/run`."""
        return (await self.running.peer(server).post("/run", body, timeout=20)).json()

    def name(self) -> str:
        """A rollout id of its own."""
        self._number += 1
        return f"rollout{self._number}"

    async def episode(self, **fields: Any) -> tuple[dict[str, Any], list[str]]:
        """Run one episode; its answer, and the events in order."""
        name = self.name()
        body = run_body(name, **fields)
        reply = await self.post(body)
        assert reply["episode_id"] == body["episode_id"]
        assert reply["task_id"] == body["task"]["task_id"]
        assert ("result" in reply) != ("failure" in reply)
        return reply, self.runs.happened(name)

    async def sessions(self) -> dict[str, int]:
        """How many sessions each server holds."""
        return {name: (await self.running.peer(name).get("/status", timeout=5)).json()["sessions"] for name in ("box", "agent")}

    async def nothing_held(self) -> None:
        """Wait until no session is open anywhere."""
        async with asyncio.timeout(8):
            while any((await self.sessions()).values()):  # noqa: ASYNC110 - servers in other processes
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["colocated", "process"])
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """The servers of the test configuration."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    runs = GymRuns(folder)
    block = CONFIG[CONFIG.index("env:\n") :]
    limited = block.replace("env:\n", "env_limited:\n") + "      max_concurrent_episodes: 1\n      queue_timeout_seconds: 0.3\n"
    limited += "      default_episode_timeout_seconds: 1.5\n"
    patient = block.replace("env:\n", "env_patient:\n") + "      max_concurrent_episodes: 1\n      queue_timeout_seconds: 10\n"
    full = patient.replace("env_patient:", "env_full:") + "      max_queued_episodes: 1\n"
    runs.config.write_text((CONFIG + limited + patient + full).format(events=runs.events_file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYM_STATE_DIR", str(runs.state))
        patch.setenv("GYM_EXTRA_ROOTS", str(ROOTS))
        patch.setenv("GYM_TEST_TAG", runs.tag)
        plan = load([runs.config], []).plan
        async with launch(plan, request.param) as running:
            yield Bench(running, runs)
        runs.check_nothing_left()


ORDER = ["seed", "seeded", "agent opened", "agent acts", "touched", "agent closed", "verify", "released"]


async def test_the_order_of_one_episode(bench: Bench) -> None:
    reply, happened = await bench.episode(reward=0.5, expected="secret answer")
    assert happened == ORDER
    result = reply["result"]
    assert (result["reward"], result["own_field"], result["mask_sample"]) == (0.5, "kept", False)
    assert result["response"]["id"] == "resp_agent"
    assert result["responses_create_params"] == {"input": "go"}
    assert result["ng_agent_observations"] == {"seen": True}
    assert result["expected"] == "secret answer"
    assert await bench.sessions() == {"box": 0, "agent": 0}


async def test_grader_fields_never_reach_the_agent(bench: Bench) -> None:
    await bench.episode(expected="the hidden truth")
    told = [event for event in bench.runs.events if event["what"].startswith("agent")]
    assert told
    assert "the hidden truth" not in str(told)
    assert "the hidden truth" in str([event for event in bench.runs.events if event["what"] == "seed"])
    token = bench.running.credentials.token
    assert token is not None
    assert token not in str(bench.runs.events)


async def test_the_agent_is_called_under_its_rollouts_prefix(bench: Bench) -> None:
    body = run_body(bench.name())
    body["episode_id"]["attempt"] = 3
    reply = await bench.post(body)
    assert reply["episode_id"]["attempt"] == 3
    name = f"{body['episode_id']['rollout_id']}-a3"
    prefixes = [event["prefix"] for event in bench.runs.events if event["what"] == "agent acts" and event["episode"] == name]
    assert prefixes == [f"/ng-rollout/{name}"]


async def test_an_agent_that_cannot_be_closed_means_no_verdict(bench: Bench) -> None:
    reply, happened = await bench.episode(metadata={"close_failures": "1"})
    failure = reply["failure"]
    assert (failure["stage"], failure["failure_kind"], failure["terminal"]) == ("cleanup", "session_release_failed", False)
    assert failure["partial_response"]["id"] == "resp_agent"
    assert "verify" not in happened
    assert happened[-3:] == ["agent close failed", "agent closed", "released"]
    await bench.nothing_held()


async def test_an_agent_that_hangs_at_its_close_starves_nobody(bench: Bench) -> None:
    reply, happened = await bench.episode(metadata={"close_seconds": "3"})
    assert reply["failure"]["stage"] == "cleanup"
    assert "within 2 s" in reply["failure"]["failure_reason"]
    assert "verify" not in happened
    assert happened[-1] == "released"
    await bench.nothing_held()


async def test_a_verdict_survives_a_failing_close_which_is_tried_once_more(bench: Bench) -> None:
    reply, happened = await bench.episode(release_failures=1, reward=0.25)
    assert reply["result"]["reward"] == 0.25
    assert happened[-3:] == ["verify", "release failed", "released"]
    reply, happened = await bench.episode(release_failures=2, reward=0.75)
    assert reply["result"]["reward"] == 0.75
    assert happened[-3:] == ["verify", "release failed", "release failed"]


async def test_a_verdict_survives_a_close_that_hangs_beyond_the_episodes_time(bench: Bench) -> None:
    body = run_body(bench.name(), release_seconds=1.8, reward=0.5)
    reply = await bench.post(body, "env_limited")
    assert reply["result"]["reward"] == 0.5


async def test_an_agent_out_of_time_is_closed_and_graded(bench: Bench) -> None:
    reply, happened = await bench.episode(metadata={"do": "hang"}, timeout=0.2, reward=0.5)
    result = reply["result"]
    assert (result["reward"], result["agent_timed_out"], result["agent_timeout_seconds"]) == (0.5, True, 0.2)
    assert (result["response"]["id"], result["response"]["status"]) == ("resp_agent", "incomplete")
    assert happened == ORDER


async def test_a_transport_time_out_is_never_graded(bench: Bench) -> None:
    reply, happened = await bench.episode(metadata={"do": "timeout"}, timeout=5)
    assert (reply["failure"]["failure_kind"], reply["failure"]["stage"]) == ("transport_timeout", "agent")
    assert "verify" not in happened
    assert happened[-2:] == ["agent closed", "released"]


async def test_an_agent_that_fails_keeps_what_it_had_done(bench: Bench) -> None:
    reply, happened = await bench.episode(metadata={"do": "fail"})
    failure = reply["failure"]
    assert (failure["failure_kind"], failure["stage"], failure["terminal"]) == ("agent_run_error", "agent", False)
    assert failure["partial_response"]["status"] == "incomplete"
    assert happened[-2:] == ["agent closed", "released"]


@pytest.mark.parametrize(("status", "terminal"), [(500, False), (422, True)])
async def test_a_seed_that_fails_ends_it_before_the_agent(bench: Bench, status: int, terminal: bool) -> None:
    reply, happened = await bench.episode(seed_status=status)
    assert (reply["failure"]["stage"], reply["failure"]["terminal"]) == ("seed", terminal)
    assert happened == ["seed", "released"]


async def test_a_verifier_that_fails_is_a_failure_and_no_zero(bench: Bench) -> None:
    reply, happened = await bench.episode(verify_status=500)
    failure = reply["failure"]
    assert (failure["stage"], failure["failure_kind"], "reward" in failure) == ("verification", "verifier_error", False)
    assert failure["partial_response"]["id"] == "resp_agent"
    assert happened[-1] == "released"


async def test_a_reward_that_is_no_number_is_a_broken_verifier(bench: Bench) -> None:
    reply, _ = await bench.episode(reward=float("nan"))
    assert reply["failure"]["failure_kind"] in ("verifier_error", "protocol_violation")
    assert reply["failure"]["stage"] == "verification"


async def test_an_episode_out_of_time_is_a_failure_with_its_partial_work(bench: Bench) -> None:
    name = bench.name()
    reply = await bench.post(run_body(name, metadata={"do": "hang"}), "env_limited")
    failure = reply["failure"]
    assert (failure["stage"], failure["failure_kind"], failure["terminal"]) == ("agent", "cancelled", False)
    assert "default_episode_timeout_seconds" in failure["failure_reason"]
    assert failure["partial_response"]["id"] == "resp_agent"
    assert bench.runs.happened(name)[-2:] == ["agent closed", "released"]


async def test_who_waits_too_long_is_told_so_and_who_need_not_gets_in(bench: Bench) -> None:
    first, second = await asyncio.gather(
        bench.post(run_body(bench.name(), metadata={"seconds": "0.8"}), "env_limited"), bench.post(run_body(bench.name()), "env_limited")
    )
    failed = [reply["failure"] for reply in (first, second) if "failure" in reply]
    assert [failure["stage"] for failure in failed] == ["admission"]
    assert failed[0]["terminal"] is False
    replies = await asyncio.gather(*(bench.post(run_body(bench.name(), metadata={"seconds": "0.1"}), "env_patient") for _ in range(4)))
    assert all("result" in reply for reply in replies)


async def test_a_full_queue_turns_away_at_once(bench: Bench) -> None:
    bodies = [run_body(bench.name(), metadata={"seconds": "0.5"}) for _ in range(3)]
    replies = await asyncio.gather(*(bench.post(body, "env_full") for body in bodies), return_exceptions=True)
    away = [reply for reply in replies if isinstance(reply, CallError)]
    assert [(error.status, error.retry_after, error.terminal) for error in away] == [(503, 1.0, False)]
    assert sum(isinstance(reply, dict) and "result" in reply for reply in replies) == 2


@pytest.mark.parametrize("where", ["seed", "agent", "verify"])
async def test_a_caller_that_goes_away_leaves_nothing(bench: Bench, where: str) -> None:
    name = bench.name()
    slow = {"seed": {"seed_seconds": 5}, "agent": {"metadata": {"do": "hang"}}, "verify": {"verify_seconds": 5}}[where]
    calling = asyncio.ensure_future(bench.post(run_body(name, **slow)))
    awaited = {"seed": "seed", "agent": "touched", "verify": "verify"}[where]
    async with asyncio.timeout(5):
        while awaited not in bench.runs.happened(name):  # noqa: ASYNC110 - servers in other processes
            await asyncio.sleep(0.02)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    async with asyncio.timeout(8):
        while "released" not in bench.runs.happened(name):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await bench.nothing_held()
    status = (await bench.running.peer("env").get("/status", timeout=5)).json()
    assert status["episodes"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"episode_id": {"rollout_id": "r"}},
        {"episode_id": {"rollout_id": "bad id"}, "task": run_body()["task"]},
        {"episode_id": {"rollout_id": "r-a1"}, "task": run_body()["task"]},
        {"episode_id": {"rollout_id": "r"}, "task": {"task_input": {}}},
    ],
)
async def test_an_episode_that_cannot_be_identified_is_refused(bench: Bench, body: Any) -> None:
    with pytest.raises(CallError) as caught:
        await bench.post(body)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    "change",
    [
        {"task_input": {}},
        {"task_input": None},
        {"task_input": {"responses_create_params": {"input": 3}}},
        {"task_input": {"responses_create_params": {"input": "q"}, "agent_timeout_seconds": -1}},
        {"task_input": {"responses_create_params": {"input": "q"}, "task_data": {"x": 1}, "x": 2}},
        {"unknown": 1},
    ],
)
async def test_one_that_can_is_a_handled_failure(bench: Bench, change: dict[str, Any]) -> None:
    body = run_body(bench.name())
    body["task"] |= change
    reply = await bench.post(body)
    failure = reply["failure"]
    assert (reply["episode_id"], failure["stage"], failure["terminal"]) == (body["episode_id"], "admission", True)
    assert failure["failure_kind"] == "protocol_violation"


async def test_flat_fields_are_folded_into_the_tasks_data(bench: Bench) -> None:
    body = run_body(bench.name())
    body["task"]["task_input"]["reward"] = 0.125
    assert (await bench.post(body))["result"]["reward"] == 0.125


async def test_many_episodes_at_once_keep_apart(bench: Bench) -> None:
    names = [bench.name() for _ in range(30)]
    replies = await asyncio.gather(*(bench.post(run_body(name, reward=index / 100)) for index, name in enumerate(names)))
    assert [reply["result"]["reward"] for reply in replies] == [index / 100 for index in range(30)]
    assert all(sorted(bench.runs.happened(name)) == sorted(ORDER) for name in names)
