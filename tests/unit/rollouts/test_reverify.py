"""Verdicts again without the agent: rollouts of one run are the input of the next, with a resources server in this process."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.config.errors import UserError
from gym.protocol.resources import BaseVerifyRequest, ReverifyMode
from gym.rollouts.collect import Summary, collect
from gym.rollouts.earlier import EarlierRun
from gym.rollouts.files import OutputFiles
from gym.rollouts.options import CollectOptions
from gym.rollouts.reverify import Rollouts, modes_of, targets_of, verifying_servers
from gym.rollouts.verdicts import read_changes
from gym.rollouts.verifier import Verifier
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, Verdict
from tests.unit.rollouts.conftest import TARGETS, Bench
from tests.unit.servers.conftest import Rig

TEXTS = {"t0": "yes", "t1": "no", "t2": "yes", "t3": "yes", "t4": "no"}


class Judge(ResourcesServer[str]):
    """Passes a response that says `right`, which may change between two runs; the task names what is masked or breaks."""

    right = "yes"
    broken: frozenset[str] = frozenset()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[dict[str, Any]] = []
        self.out = self.most_out = 0

    async def seed(self, session: ResourcesSession[str], task_data: dict[str, Any]) -> None:
        session.state = task_data["instance_id"]

    async def verify(self, session: ResourcesSession[str] | None, request: BaseVerifyRequest) -> Verdict:
        data = request.task_data()
        assert (session is None) == (self.reverify_mode == "stateless")
        assert session is None or session.state == data["instance_id"]
        self.asked.append(data)
        self.out += 1
        self.most_out = max(self.out, self.most_out)
        await asyncio.sleep(0.005)
        self.out -= 1
        if data["instance_id"] in self.broken:
            raise RuntimeError("the verifier broke")
        said = request.response.output[0]["content"][0]["text"]
        return Masked("verifier_error", "it is illegible") if said == "?" else Scored(float(said == self.right), {"said": said})


def rollout(text: str, reward: float | None, **fields: Any) -> dict[str, Any]:
    """What an environment server answered."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    response = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": [message], "tools": [], "tool_choice": "auto"}
    return Bench.result(reward, response={**response, "parallel_tool_calls": True}, ng_agent_observations={"turns": 1}, **fields)


class Again:
    """An earlier run, and what verifies it again."""

    def __init__(self, bench: Bench, rig: Rig) -> None:
        self.bench, self.rig = bench, rig
        self.new = OutputFiles(bench.folder / "new.jsonl")
        self.judge: Judge

    async def serve(self, mode: ReverifyMode = "stateless", right: str = "yes", broken: tuple[str, ...] = ()) -> None:
        kind = type("Judge", (Judge,), {"reverify_mode": mode, "right": right, "broken": frozenset(broken)})
        self.judge = await self.rig.add("bench", kind)

    async def earlier(self, texts: dict[str, str] = TEXTS, **rows: dict[str, Any]) -> None:
        """Each task's rollout said its text and was judged by `yes`; `rows` are other answers, by task."""
        self.bench.rows({"instance_id": name, "wanted": "yes", "responses_create_params": {"input": "q"}} for name in texts)

        def script(rollout_id: str, attempt: int, request: dict[str, Any]) -> Any:
            name = request["task"]["task_input"]["instance_id"]
            given = {"instance_id": name, "wanted": "yes"}
            return rows.get(name) or rollout(texts[name], float(texts[name] == "yes"), said=texts[name], only_once=True, **given)

        self.bench.script(script)
        await self.bench.collect(attempts=1)

    async def verify(self, **options: Any) -> Summary:
        options = {"attempts": 1, **options}
        targets = targets_of(TARGETS)
        modes = await modes_of(verifying_servers(targets, None), self.rig.peer)
        asked = CollectOptions(input=self.bench.files.output, output=self.new.output, reverify=True, **options)
        verifier = Verifier(asked.input, targets, modes, self.rig.peer, {})
        try:
            preparation = partial(Rollouts, modes=modes)
            return await collect(asked, targets, verifier, run_id="again", config_keys={}, preparation=preparation)
        finally:
            verifier.close()

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["_ng_task_id"]["task_id"]: row for row in self.bench.read(self.new.output)}


@pytest.fixture
async def again(bench: Bench, tmp_path: Path) -> AsyncIterator[Again]:
    async with Rig(tmp_path) as rig:
        yield Again(bench, rig)


@pytest.mark.parametrize("mode", ["stateless", "seeded"])
async def test_old_and_new_verdicts_stand_side_by_side(again: Again, mode: ReverifyMode) -> None:
    await again.serve(mode, right="no")
    masked = rollout("no", None, mask_sample=True, failure_kind="session_lost", failure_reason="gone", lost_session_verification=True)
    illegible = rollout("?", 1.0)
    await again.earlier(t3=masked, t4=illegible, t2=Bench.failure())
    before = {path.name: path.read_bytes() for path in again.bench.folder.iterdir()}
    summary = await again.verify()
    assert {path.name: path.read_bytes() for path in again.bench.folder.iterdir() if path.name in before} == before
    assert summary.coverage.line().startswith("4 expected = 3 measured + 1 masked + 0 unscored + 0 failed + 0 owed; 4 attempts")
    assert summary.exit_code == 76
    assert EarlierRun(again.bench.files.output).without_row() == 1
    rows = again.rows
    assert {name: (row["reward"], row["mask_sample"]) for name, row in rows.items() if name != "t4"} == {
        "t0": (0.0, False),
        "t1": (1.0, False),
        "t3": (1.0, False),
    }
    assert rows["t4"]["mask_sample"] is True
    assert rows["t4"]["failure_reason"] == "it is illegible"
    old = rows["t0"]["ng_previous_verdict"]
    assert old["run_id"] == "run"
    assert old["verdict"] == {"reward": 1.0, "mask_sample": False, "said": "yes", "only_once": True}
    assert rows["t3"]["ng_previous_verdict"]["verdict"] == {
        "mask_sample": True,
        "failure_kind": "session_lost",
        "failure_reason": "gone",
        "lost_session_verification": True,
    }
    for row in rows.values():
        assert not row.keys() & {"only_once", "lost_session_verification"}, "what only the old verdict said is not the new one's"
        assert row["agent_ref"]["name"] == "agent"
        assert row["ng_agent_observations"] == {"turns": 1}
        assert row["_ng_run_id"] == "again"
    assert all(asked == {"instance_id": asked["instance_id"], "wanted": "yes"} for asked in again.judge.asked), "nothing of a verdict"
    changes = read_changes(again.new.output)
    assert changes.line() == "4 of 4 verdicts changed: 1 higher, 1 lower, 1 measured now, 1 masked now"
    flips = {flip.rollout_id: (flip.old, flip.new) for flip in changes.flips}
    assert flips == {"0-0": (1.0, 0.0), "1-0": (0.0, 1.0), "3-0": (None, 1.0), "4-0": (1.0, None)}
    assert len(again.judge.sessions) == 0


async def test_the_same_verifier_changes_nothing(again: Again) -> None:
    await again.serve()
    await again.earlier()
    summary = await again.verify(concurrency=2)
    assert summary.exit_code == 0
    assert again.judge.most_out == 2
    changes = read_changes(again.new.output)
    assert (changes.line(), changes.flips) == ("0 of 5 verdicts changed", [])


async def test_what_rests_on_the_session_is_refused_before_anything_is_written(again: Again) -> None:
    await again.serve("unsupported")
    await again.earlier()
    with pytest.raises(UserError, match=r"bench cannot verify without the episode .*'unsupported'.*run the tasks again"):
        await again.verify()
    assert not again.new.output.exists()
    assert not again.new.failures.exists()


async def test_failures_stay_apart_and_are_resumed(again: Again) -> None:
    await again.serve(broken=("t1", "t3"))
    await again.earlier()
    first = await again.verify()
    assert (first.exit_code, first.coverage.measured, first.coverage.failed) == (76, 3, 2)
    assert {row["_ng_failure_kind"] for row in again.bench.read(again.new.failures)} == {"verifier_error"}
    with pytest.raises(UserError, match="--resume, or replace it with --overwrite"):
        await again.verify()
    await again.serve()
    second = await again.verify(attempts=2, resume=True)
    assert (second.exit_code, second.coverage.measured, len(again.rows)) == (0, 5, 5)
    assert {row["_ng_attempt_index"] for row in again.rows.values()} == {0, 1}
    assert await again.verify(attempts=2, overwrite=True)


async def test_a_run_is_not_resumed_as_a_verification(again: Again) -> None:
    await again.serve()
    await again.earlier()
    again.new = again.bench.files
    with pytest.raises(UserError, match="is one of the files that this run writes"):
        await again.verify(resume=True)
    again.new = OutputFiles(again.bench.folder / "other.jsonl")
    asked = CollectOptions(input=again.bench.input, output=again.new.output)
    await collect(asked, TARGETS, again.bench.dispatcher, run_id="run", config_keys={})
    with pytest.raises(UserError, match="begun with another gym eval reverify"):
        await again.verify(resume=True)


async def test_rows_that_are_no_rollouts_cost_themselves(again: Again) -> None:
    await again.serve()
    await again.earlier()
    lines = again.bench.files.output.read_bytes().splitlines(keepends=True)
    failed = orjson.dumps({"_ng_failure_class": "x", "_ng_rollout_id": "9-0"}) + b"\n"
    foreign = orjson.dumps({**orjson.loads(lines[0]), "_ng_rollout_id": "9-1", "_ng_task_index": 9}) + b"\n"
    again.bench.files.output.write_bytes(b"\n" + b"".join(lines) + b"{torn\n" + failed + foreign)
    summary = await again.verify()
    assert (summary.coverage.measured, summary.coverage.failed, summary.coverage.invalid) == (5, 3, 3)
    said = [row["_ng_failure_message"] for row in again.bench.read(again.new.failures)]
    assert all(what in message for what, message in zip(("not JSON", "a failed attempt", "has no task in"), said, strict=True))


async def test_an_earlier_run_that_changes_meanwhile_is_noticed(again: Again) -> None:
    await again.serve()
    await again.earlier()
    targets = targets_of(TARGETS)
    content = again.bench.files.output.read_bytes()
    verifier = Verifier(again.bench.files.output, targets, {"bench": "stateless"}, again.rig.peer, {})
    again.bench.files.output.write_bytes(b" " * len(content))
    place = {"task_input": {}, "rollout": {"offset": 0, "length": 100}}
    request = {
        "episode_id": {"rollout_id": "0-0", "attempt": 0},
        "task": {"task_id": {"taskset": "t", "task_id": "t0"}, "task_input": place},
    }
    _, reply = await verifier.run("env", orjson.dumps(request))
    verifier.close()
    failure = orjson.loads(reply)["failure"]
    assert failure["terminal"] is True
    assert "has changed: rollout '0-0' is not where it was" in failure["failure_reason"]


async def test_a_row_without_its_tokens_stays_masked(again: Again) -> None:
    await again.serve()
    capture = {"masked_reason": "a gap", "tokens": 3}
    masked = {"mask_sample": True, "failure_kind": "token_capture_failed", "failure_reason": "no tokens to train on: a gap"}
    await again.earlier(t0=rollout("yes", 1.0, _ng_token_capture=capture, **masked))
    await again.verify()
    row = again.rows["t0"]
    assert (row["mask_sample"], row["failure_kind"], row["_ng_token_capture"]) == (True, "token_capture_failed", capture)


async def test_the_tasks_must_be_beside_the_rollouts(again: Again) -> None:
    await again.earlier()
    again.bench.files.materialized.unlink()
    with pytest.raises(UserError, match=r"out_materialized_inputs\.jsonl is not there, and with it the tasks"):
        EarlierRun(again.bench.files.output).check()
