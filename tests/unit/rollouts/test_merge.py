"""Shards of a run, and the whole that is made of them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gym.config.errors import UserError
from gym.rollouts.files import OutputFiles
from gym.rollouts.merge import merge
from gym.rollouts.options import shard_from

if TYPE_CHECKING:
    from conftest import Bench


async def _shards(bench: "Bench", number: int) -> list[Path]:
    outputs: list[Path] = []
    for part in range(1, number + 1):
        bench.files = OutputFiles(bench.folder / f"part{part}.jsonl")
        await bench.collect(shard=(part, number), num_repeats=2, attempts=2)
        outputs.append(bench.files.output)
    bench.files = OutputFiles(bench.folder / "out.jsonl")
    return outputs


async def test_shards_make_the_same_whole_as_one_run(bench: "Bench") -> None:
    bench.rows([{"instance_id": f"t{index // 2}"} for index in range(14)] + [b"no json\n"])
    bench.script(lambda rollout, *_: bench.failure() if rollout == "2-1" else bench.masked() if rollout == "4-0" else bench.result(0.5))
    whole = await bench.collect(num_repeats=2, attempts=2)
    names = sorted(row["_ng_rollout_id"] for row in bench.output)
    outputs = await _shards(bench, 3)
    summary = merge(bench.files.output, outputs, overwrite=True)
    bench.check(summary)
    assert summary.coverage == whole.coverage
    assert summary.metrics["overall"] == whole.metrics["overall"]
    assert sorted(row["_ng_rollout_id"] for row in bench.output) == names
    again = bench.script(lambda *_: bench.result(0.5))
    resumed = await bench.collect(num_repeats=2, attempts=3, resume=True)
    assert sorted(again.calls) == [("2-1", 2)], "the whole can be resumed; a masked row stays"
    assert resumed.coverage.expected == whole.coverage.expected


async def test_the_whole_says_what_was_changed_in_a_shard(bench: "Bench") -> None:
    bench.rows([{"x": index} for index in range(6)])
    outputs = await _shards(bench, 2)
    bench.config_keys = {**bench.config_keys, "policy_model.model": "2"}
    bench.files = OutputFiles(outputs[1])
    await bench.collect(shard=(2, 2), num_repeats=2, attempts=2, resume=True, allow_unsafe_resume=True)
    bench.files = OutputFiles(bench.folder / "out.jsonl")
    merge(bench.files.output, outputs)
    assert bench.manifest["changed_on_resume"] == ["policy_model.model"]
    assert bench.manifest["resumed_by"] == ["run"]
    assert bench.manifest["positional_rows"] == 6


async def test_what_is_not_all_of_one_run_is_refused(bench: "Bench") -> None:
    bench.rows(6)
    first, second = await _shards(bench, 2)
    whole = bench.files.output
    with pytest.raises(UserError, match="2/2 are missing"):
        merge(whole, [first])
    with pytest.raises(UserError, match="is named twice"):
        merge(whole, [first, first])
    with pytest.raises(UserError, match="has no manifest"):
        merge(whole, [first, bench.folder / "other.jsonl"])
    attempts = OutputFiles(second).attempts
    attempts.touch()
    with pytest.raises(UserError, match="not brought to its end"):
        merge(whole, [first, second])
    attempts.unlink()
    bench.config_keys = {**bench.config_keys, "policy_model.model": "other"}
    bench.files = OutputFiles(second)
    await bench.collect(shard=(2, 2), num_repeats=2, overwrite=True)
    with pytest.raises(UserError, match=r"differ in policy_model\.model"):
        merge(whole, [first, second])
    assert not whole.exists()


async def test_a_shard_may_be_empty(bench: "Bench") -> None:
    """Where there are more shards than tasks, the last ones have nothing to do, and are merged like the others."""
    bench.rows(2)
    whole, shards = bench.files.output, [bench.folder / f"part{number}.jsonl" for number in (1, 2, 3)]
    for number, shard in enumerate(shards, 1):
        bench.files = OutputFiles(shard)
        summary = await bench.collect(shard=(number, 3))
        assert summary.coverage.expected == summary.coverage.measured == (0 if number == 3 else 1)
    assert merge(whole, shards).coverage.measured == 2


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/0", "-1/2"])
def test_shards_that_cannot_be_meant(text: str) -> None:
    assert shard_from("2/3") == (2, 3)
    with pytest.raises(UserError, match="must be i/n"):
        shard_from(text)
