"""Whole collections: what is written, what is counted, what is tried again."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym.client import CallError
from gym.config.errors import UserError
from gym.config.plan import Route
from gym.rollouts.targets import Targets

if TYPE_CHECKING:
    from conftest import Bench


async def test_every_row_is_measured_and_named(bench: "Bench") -> None:
    bench.rows(3)
    summary = await bench.collect(num_repeats=2)
    assert summary.exit_code == 0
    assert sorted(row["_ng_rollout_id"] for row in bench.output) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    row = next(row for row in bench.output if row["_ng_rollout_id"] == "1-1")
    assert row["_ng_task_index"] == 1
    assert row["_ng_rollout_index"] == 1
    assert row["_ng_attempt_index"] == 0
    assert row["_ng_run_id"] == "run"
    assert row["_ng_task_id"] == {"taskset": "bench:all", "task_id": "t1"}
    assert row["_ng_environment_server"] == "env"
    assert row["agent_ref"] == {"type": "responses_api_agents", "name": "agent"}
    assert row["reward"] == 1.0
    assert bench.failures == []
    assert bench.manifest["next_attempt"] == dict.fromkeys(["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"], 1)


async def test_the_request_holds_the_task_and_nothing_else(bench: "Bench") -> None:
    seen: list[dict[str, Any]] = []
    tricky = {"instance_id": 't,"task_input":{"x', "q": 'ü\n","task_input":', "_ng_secret": 1}
    bench.rows([tricky])
    bench.script(lambda rollout, attempt, request: seen.append(request) or bench.result())
    assert (await bench.collect()).exit_code == 0
    assert seen == [
        {
            "episode_id": {"rollout_id": "0-0", "attempt": 0},
            "task": {
                "task_id": {"taskset": "bench:all", "task_id": tricky["instance_id"]},
                "task_input": {"instance_id": tricky["instance_id"], "q": tricky["q"]},
            },
        }
    ]


async def test_the_materialized_file_is_an_input_of_its_own(bench: "Bench", tmp_path: Path) -> None:
    bench.rows(2)
    await bench.collect(num_repeats=2)
    first = {row["_ng_rollout_id"] for row in bench.output}
    bench.input.write_bytes(bench.files.materialized.read_bytes())
    digest = bench.manifest["tasks_digest"]
    assert (await bench.collect(overwrite=True)).exit_code == 0
    assert {row["_ng_rollout_id"] for row in bench.output} == first
    assert bench.manifest["tasks_digest"] == digest


async def test_bad_rows_cost_only_themselves(bench: "Bench") -> None:
    bench.rows(
        [
            {"instance_id": "a"},
            b"{broken\n",
            {"task_id": {"taskset": "bench:all"}, "task_input": {}},
            {"instance_id": "b", "_ng_rollout_id": "bad id"},
            {"task_id": {"taskset": "unknown", "task_id": "x"}, "task_input": {}},
            {"instance_id": "c", "agent_ref": {"name": "nobody"}},
            {"instance_id": "d", "_ng_task_index": -1},
            {"instance_id": "e"},
        ]
    )
    summary = await bench.collect(num_repeats=2)
    assert summary.exit_code == 76
    assert (summary.coverage.expected, summary.coverage.measured, summary.coverage.failed) == (16, 4, 12)
    assert summary.coverage.invalid == 12
    assert len(bench.dispatcher.calls) == 4
    failed = bench.failures
    assert {row["_ng_failure_class"] for row in failed} == {"invalid_task"}
    assert {row["_ng_failure_kind"] for row in failed} == {"protocol_violation"}
    assert all(row["_ng_failure_terminal"] for row in failed)
    assert [row["_ng_rollout_id"] for row in failed[:2]] == ["1-0", "1-1"]
    assert f"{bench.input}:2: not JSON" in failed[0]["_ng_failure_message"]
    record = failed[0]["_ng_failure_record"]
    assert record["delivery"] == "not_sent"
    assert record["episode_id"] == {"rollout_id": "1-0", "attempt": 0}


async def test_given_rollout_ids(bench: "Bench") -> None:
    bench.rows([{"instance_id": "a", "_ng_rollout_id": "mine"}])
    await bench.collect()
    assert [row["_ng_rollout_id"] for row in bench.output] == ["mine"]
    await bench.collect(num_repeats=2, overwrite=True)
    assert sorted(row["_ng_rollout_id"] for row in bench.output) == ["mine-r0", "mine-r1"]


async def test_the_same_line_below_itself_is_one_more_repeat(bench: "Bench") -> None:
    bench.rows([{"x": 1}, {"x": 1}, {"x": 2}])
    await bench.collect()
    assert sorted(row["_ng_rollout_id"] for row in bench.output) == ["0-0", "0-1", "2-0"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"instance_id": "a"}, {"instance_id": "b"}, {"instance_id": "a"}], "same task id stands in two rows: 'a' (lines 1 and 3)"),
        (
            [{"instance_id": "a", "_ng_rollout_id": "1-0"}, {"instance_id": "b"}],
            "same rollout id stands in two rows: '1-0' (lines 1 and 2)",
        ),
    ],
)
async def test_duplicates_stop_the_run_before_it_begins(bench: "Bench", rows: list[Any], says: str) -> None:
    bench.rows(rows)
    with pytest.raises(UserError) as caught:
        await bench.collect()
    assert says in str(caught.value)
    assert sorted(path.name for path in bench.folder.iterdir()) == ["out_run.lock", "rows.jsonl"]


async def test_an_existing_output_is_never_touched(bench: "Bench") -> None:
    bench.rows(1)
    await bench.collect()
    before = {path.name: path.read_bytes() for path in bench.folder.iterdir()}
    with pytest.raises(UserError, match="--overwrite"):
        await bench.collect()
    bench.rows([])
    with pytest.raises(UserError, match="holds no rows"):
        await bench.collect(overwrite=True)
    bench.input.unlink()
    with pytest.raises(UserError, match="does not exist"):
        await bench.collect(overwrite=True)
    del before["rows.jsonl"]
    assert {path.name: path.read_bytes() for path in bench.folder.iterdir()} == before


async def test_the_input_cannot_be_the_output(bench: "Bench") -> None:
    bench.rows(1)
    bench.files.output.hardlink_to(bench.input)
    with pytest.raises(UserError, match="one of the files that this run writes"):
        await bench.collect(overwrite=True)


async def test_a_failure_is_tried_again_and_each_attempt_is_on_file(bench: "Bench") -> None:
    bench.rows(2)
    bench.script(lambda rollout, attempt, _: bench.failure() if rollout == "0-0" and attempt < 2 else bench.result())
    summary = await bench.collect()
    assert summary.exit_code == 0
    assert bench.dispatcher.calls == [("0-0", 0), ("1-0", 0), ("0-0", 1), ("0-0", 2)]
    assert [(row["_ng_rollout_id"], row["_ng_attempt_index"]) for row in bench.failures] == [("0-0", 0), ("0-0", 1)]
    assert {row["_ng_rollout_id"]: row["_ng_attempt_index"] for row in bench.output} == {"0-0": 2, "1-0": 0}
    assert bench.manifest["next_attempt"] == {"0-0": 3, "1-0": 1}
    assert summary.coverage.attempts == 4
    assert summary.coverage.counted_failures == 2
    row = bench.failures[0]
    assert row["_ng_failure_class"] == "environment_server_failed"
    assert row["_ng_failure_terminal"] is False
    assert row["_ng_failure_record"]["source"] == "environment"


async def test_attempts_are_bounded(bench: "Bench") -> None:
    bench.rows(3)
    bench.script(lambda *_: bench.failure())
    summary = await bench.collect(attempts=4)
    assert summary.exit_code == 76
    assert Counter(rollout for rollout, _ in bench.dispatcher.calls) == {"0-0": 4, "1-0": 4, "2-0": 4}
    assert len(bench.failures) == 12
    assert summary.coverage.attempts_exhausted == 3
    assert summary.coverage.failed_by_kind == {"agent_run_error": 3}


@pytest.mark.parametrize("reply", [{"terminal": True}, {"kind": "protocol_violation"}, {"kind": "agent_timeout"}])
async def test_terminal_failures_are_not_tried_again(bench: "Bench", reply: dict[str, Any]) -> None:
    bench.rows(1)
    bench.script(lambda *_: bench.failure(**reply))
    assert (await bench.collect()).exit_code == 76
    assert len(bench.dispatcher.calls) == 1
    assert bench.failures[0]["_ng_failure_terminal"] is True


async def test_masked_is_tried_again_and_kept_at_the_end(bench: "Bench") -> None:
    bench.rows(2)
    masked = {"mask_sample": True, "failure_kind": "verifier_error", "failure_reason": "no verdict"}
    bench.script(lambda rollout, attempt, _: bench.result(0.0, **masked) if rollout == "0-0" or attempt == 0 else bench.result(0.5))
    summary = await bench.collect()
    assert summary.exit_code == 76
    assert (summary.coverage.measured, summary.coverage.masked) == (1, 1)
    assert {row["_ng_rollout_id"]: (row["_ng_attempt_index"], row["mask_sample"]) for row in bench.output} == {
        "0-0": (2, True),
        "1-0": (1, False),
    }
    assert Counter(row["_ng_failure_class"] for row in bench.failures) == {"masked_result": 3}
    assert bench.failures[0]["_ng_failure_partial_response"] == {"id": "r", "output": []}
    assert summary.metrics["overall"]["mean_reward"] == 0.5
    assert summary.metrics["overall"]["masked"] == 1


async def test_an_infrastructure_failure_is_never_a_zero(bench: "Bench") -> None:
    bench.rows(1)
    bench.script(lambda *_: bench.result(0.0, failure_kind="judge_failed"))
    summary = await bench.collect(attempts=1)
    assert (summary.coverage.measured, summary.coverage.masked) == (0, 1)
    assert bench.output[0]["mask_sample"] is True
    assert summary.metrics["overall"]["mean_reward"] is None


async def test_a_graded_timeout_and_a_servers_own_kind_are_measured(bench: "Bench") -> None:
    bench.rows(2)
    kinds = {"0-0": "agent_timeout", "1-0": "bench:patch_failed"}
    bench.script(lambda rollout, *_: bench.result(0.0, failure_kind=kinds[rollout]))
    assert (await bench.collect()).coverage.measured == 2


async def test_no_verdict_is_unscored(bench: "Bench") -> None:
    bench.rows(1)
    bench.script(lambda *_: bench.result(None))
    summary = await bench.collect()
    assert summary.exit_code == 0
    assert summary.coverage.unscored == 1
    assert "reward" not in bench.output[0]


async def test_a_full_server_costs_no_attempt(bench: "Bench") -> None:
    bench.rows(2)
    turned_away = Counter[str]()

    def script(rollout: str, attempt: int, _: dict[str, Any]) -> Any:
        turned_away[rollout] += 1
        if turned_away[rollout] < 6:
            return CallError("full", kind="agent_request_failed", delivery="delivered", status=503, retry_after=0.001)
        return bench.result()

    bench.script(script)
    summary = await bench.collect(attempts=1)
    assert summary.exit_code == 0
    assert bench.failures == []
    assert {attempt for _, attempt in bench.dispatcher.calls} == {0}


async def test_a_handled_admission_failure_costs_no_attempt(bench: "Bench") -> None:
    bench.rows(1)
    bench.script(lambda _, attempt, __: bench.failure("environment_server_failed", stage="admission") if attempt < 5 else bench.result())
    summary = await bench.collect(attempts=1)
    assert summary.exit_code == 0
    assert summary.coverage.counted_failures == 0
    assert len(bench.failures) == 5


async def test_a_dead_server_ends_the_run_and_costs_no_budget(bench: "Bench") -> None:
    bench.rows(2)
    dead = CallError("connection refused", kind="transport_unreachable", delivery="not_sent")
    bench.script(lambda rollout, *_: dead if rollout == "0-0" else bench.result())
    summary = await bench.collect()
    assert summary.exit_code == 76
    assert (summary.coverage.measured, summary.coverage.failed) == (1, 1)
    assert summary.coverage.counted_failures == 0
    assert bench.failures[0]["_ng_failure_class"] == "agent_request_failed"
    assert bench.failures[0]["_ng_failure_kind"] == "transport_unreachable"
    assert bench.failures[0]["_ng_failure_record"]["delivery"] == "not_sent"


async def test_a_400_costs_its_own_rollout(bench: "Bench") -> None:
    bench.rows(3)
    bad = CallError("env answered 400", kind="agent_request_failed", delivery="delivered", status=400)
    bench.script(lambda rollout, *_: bad if rollout == "1-0" else bench.result())
    summary = await bench.collect()
    assert (summary.coverage.measured, summary.coverage.failed) == (2, 1)
    assert len(bench.dispatcher.calls) == 3
    assert bench.failures[0]["_ng_failure_record"]["http_status"] == 400


async def test_a_defect_of_the_dispatcher_costs_its_own_rollout(bench: "Bench") -> None:
    bench.rows(2)
    bench.script(lambda rollout, *_: KeyError("oops, api_key=sk-0123456789abcdef") if rollout == "0-0" else bench.result())
    summary = await bench.collect(attempts=1)
    assert (summary.coverage.measured, summary.coverage.failed) == (1, 1)
    assert bench.failures[0]["_ng_failure_record"]["exception_type"] == "KeyError"
    assert "sk-0123456789abcdef" not in orjson.dumps(bench.failures).decode()


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("reported_by", ["environment", "dispatcher"])
async def test_refused_credentials_stop_the_run(bench: "Bench", status: int, reported_by: str) -> None:
    bench.rows(50)
    refusal: Any = (
        bench.failure("agent_request_failed", http_status=status, terminal=True, stage="agent")
        if reported_by == "environment"
        else CallError("refused", kind="agent_request_failed", delivery="delivered", status=status)
    )

    async def slowly() -> Any:
        await asyncio.sleep(5)

    bench.script(lambda rollout, *_: refusal if rollout == "1-0" else slowly())
    summary = await bench.collect(concurrency=3)
    assert summary.exit_code == 1
    assert summary.problem is not None
    assert f"HTTP {status}" in summary.problem
    assert "\n" not in summary.problem
    assert len(bench.dispatcher.calls) == 3
    assert (summary.coverage.failed, summary.coverage.owed) == (1, 49)


async def test_a_models_own_word_for_refused_credentials(bench: "Bench") -> None:
    bench.rows(5)
    bench.script(lambda *_: bench.failure("openai_model:credentials_refused", terminal=True, failure_reason="two\nlines"))
    summary = await bench.collect(concurrency=1)
    assert summary.exit_code == 1
    assert summary.problem == "credentials were refused, the run is stopped: two lines"
    assert len(bench.dispatcher.calls) == 1


_BROKEN: dict[str, Callable[["Bench"], Any]] = {
    "not JSON": lambda b: (200, b"<html>"),
    "not an object": lambda b: (200, b"[]"),
    "no identity": lambda b: (200, b"{}"),
    "another rollout": lambda b: {**b.result(), "episode_id": {"rollout_id": "9-9", "attempt": 0}},
    "another task": lambda b: {**b.result(), "task_id": {"taskset": "bench:all", "task_id": "other"}},
    "both": lambda b: {**b.result(), **b.failure()},
    "neither": lambda b: {},
    "a reward that is none": lambda b: b.result("1.0"),  # type: ignore[arg-type]
    "a result that is none": lambda b: {"result": [1]},
    "a failure that is none": lambda b: {"failure": "x"},
    "another status": lambda b: (204, b""),
}


@pytest.mark.parametrize("what", _BROKEN)
async def test_a_reply_that_breaks_the_contract_is_terminal(bench: "Bench", what: str) -> None:
    bench.rows(2)
    bench.script(lambda rollout, *_: _BROKEN[what](bench) if rollout == "0-0" else bench.result())
    summary = await bench.collect()
    assert (summary.coverage.measured, summary.coverage.failed) == (1, 1)
    assert len(bench.dispatcher.calls) == 2
    assert bench.failures[0]["_ng_failure_kind"] == "protocol_violation"
    assert bench.failures[0]["_ng_failure_record"]["delivery"] == "delivered"


async def test_a_reply_of_another_attempt_is_tried_again(bench: "Bench") -> None:
    bench.rows(1)
    late = {**bench.result(), "episode_id": {"rollout_id": "0-0", "attempt": 7}}
    bench.script(lambda _, attempt, __: late if attempt == 0 else bench.result())
    assert (await bench.collect()).exit_code == 0


async def test_a_failure_in_the_old_form(bench: "Bench") -> None:
    bench.rows(1)
    bench.script(lambda *_: bench.result(0.0, _ng_failure_class="judge_failed", _ng_failure_terminal=True))
    summary = await bench.collect()
    assert summary.coverage.failed == 1
    assert bench.output == []
    assert bench.failures[0]["_ng_failure_class"] == "judge_failed"


async def test_a_result_cannot_set_the_collectors_keys(bench: "Bench") -> None:
    bench.rows(1)
    bench.script(lambda *_: bench.result(1.0, _ng_rollout_id="stolen", _ng_more=1, ng_perf={"num_turns": 1}))
    await bench.collect()
    row = bench.output[0]
    assert row["_ng_rollout_id"] == "0-0"
    assert "_ng_more" not in row
    assert row["ng_perf"] == {"num_turns": 1}


async def test_the_window_is_bounded(bench: "Bench") -> None:
    bench.rows(200)
    await bench.collect(concurrency=7)
    assert bench.dispatcher.most_out == 7


async def test_two_collectors_on_one_output(bench: "Bench") -> None:
    bench.rows(1)
    began = asyncio.Event()

    async def hold() -> Any:
        began.set()
        await asyncio.sleep(0.2)
        return bench.result()

    bench.script(lambda *_: hold())
    first = asyncio.create_task(bench.collect())
    await began.wait()
    before = {path.name: path.read_bytes() for path in bench.folder.iterdir()}
    with pytest.raises(UserError, match="another collector"):
        await bench.collect(overwrite=True)
    assert {path.name: path.read_bytes() for path in bench.folder.iterdir()} == before
    assert (await first).exit_code == 0


async def test_cancelling_writes_the_account(bench: "Bench") -> None:
    bench.rows(10)

    all_out = asyncio.Event()

    async def slowly() -> Any:
        if len(bench.dispatcher.calls) == 6:
            all_out.set()
        await asyncio.sleep(30)

    bench.script(lambda rollout, *_: bench.result() if rollout in ("0-0", "1-0") else slowly())
    task = asyncio.create_task(bench.collect(concurrency=4))
    await asyncio.wait_for(all_out.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    coverage = orjson.loads(bench.files.coverage.read_bytes())
    assert (coverage["measured"], coverage["owed"], coverage["interrupted"]) == (2, 8, True)
    assert bench.dispatcher.out == 0
    assert len(bench.manifest["next_attempt"]) == 6


async def test_several_environments(bench: "Bench") -> None:
    targets = Targets(
        routes={"one:all": Route("e1", resources="r1"), "two:all": Route("e2", resources="r2")},
        environments={"e1": Route("e1", resources="r1", agent="a1"), "e2": Route("e2", resources="r2", agent="a2")},
    )
    bench.rows(
        [
            {"task_id": {"taskset": "two:all", "task_id": "x"}, "task_input": {}},
            {"instance_id": "y", "agent_ref": {"name": "a1"}},
            {"instance_id": "z", "agent_ref": {"name": "e2"}},
        ]
    )
    await bench.collect(targets)
    assert [row["_ng_environment_server"] for row in sorted(bench.output, key=lambda row: row["_ng_task_index"])] == ["e2", "e1", "e2"]
    bench.rows([{"instance_id": "y"}])
    with pytest.raises(UserError, match="choose with --env or --agent"):
        await bench.collect(targets, overwrite=True)
    with pytest.raises(UserError, match="did you mean 'e1'"):
        await bench.collect(targets, overwrite=True, environment="e11")
    await bench.collect(targets, overwrite=True, agent="a2")
    assert bench.output[0]["_ng_task_id"] == {"taskset": "two:all", "task_id": "y"}
    bench.rows([{"task_id": {"taskset": "two:all", "task_id": "x"}, "task_input": {}}])
    summary = await bench.collect(targets, overwrite=True, environment="e1")
    assert summary.coverage.failed == 1
    assert "whose resources server is not that of 'e1'" in bench.failures[0]["_ng_failure_message"]


_ANSWERS = ["ok", "masked", "unscored", "retry", "terminal", "dead", "broken", "defect", "admission"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(st.lists(st.sampled_from(_ANSWERS), min_size=1, max_size=5), min_size=1, max_size=8),
    bad=st.integers(0, 2),
    repeats=st.integers(1, 3),
    attempts=st.integers(1, 4),
)
async def test_expected_is_accounted_for(bench: "Bench", plan: list[list[str]], bad: int, repeats: int, attempts: int) -> None:
    answers: dict[str, Any] = {
        "ok": bench.result(),
        "masked": bench.result(0.0, mask_sample=True),
        "unscored": bench.result(None),
        "retry": bench.failure(),
        "terminal": bench.failure(terminal=True),
        "dead": CallError("dead", kind="transport_unreachable", delivery="not_sent"),
        "broken": (200, b"{"),
        "defect": RuntimeError("x"),
        "admission": bench.failure("environment_server_failed", stage="admission"),
    }

    def script(rollout: str, attempt: int, _: dict[str, Any]) -> Any:
        mine = plan[int(rollout.partition("-")[0])]
        return answers[mine[attempt] if attempt < len(mine) else "ok"]

    bench.rows([*({"instance_id": str(index)} for index in range(len(plan))), *[b"bad\n"] * bad])
    bench.script(script)
    summary = await bench.collect(overwrite=True, num_repeats=repeats, attempts=attempts)
    coverage = summary.coverage
    assert coverage.expected == (len(plan) + bad) * repeats
    assert coverage.owed == 0
    assert coverage.attempts == len(bench.dispatcher.calls)
    assert coverage.attempts == len(bench.output) + len(bench.failures) - bad * repeats
    assert (summary.exit_code == 0) == (coverage.measured + coverage.unscored == coverage.expected)
    counted = Counter(
        row["_ng_rollout_id"]
        for row in bench.failures
        if row["_ng_failure_record"]["delivery"] != "not_sent"
        and not row["_ng_failure_terminal"]
        and row["_ng_failure_stage"] != "admission"
    )
    assert not counted or max(counted.values()) <= attempts


def test_a_flat_row_follows_its_data_sets_route_where_nobody_chose() -> None:
    targets = Targets({"two:b": Route("second")}, {"first": Route("first", agent="x"), "second": Route("second", agent="y")})
    assert targets.of_flat_row({}, None, "two:b") == "second"
    assert targets.of_flat_row({}, "first", "two:b") == "first"
    assert targets.of_flat_row({"agent_ref": {"name": "x"}}, None, "two:b") == "first"
    with pytest.raises(UserError, match="choose with --env"):
        targets.of_flat_row({}, None, "unknown")
