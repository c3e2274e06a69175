"""Metrics: against definitions written out, and by hand."""

import math
from pathlib import Path
from statistics import mean
from typing import Any

import orjson
import pytest

from gym.rollouts.metrics import compute_metrics


def _file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "out.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def _row(task: int, reward: float | None, taskset: str = "s", **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_task_id": {"taskset": taskset, "task_id": str(task)}, "reward": reward, **more}


def test_the_standard_error_is_clustered_by_task(tmp_path: Path) -> None:
    rewards = {0: [1.0, 1.0], 1: [0.0, 0.0], 2: [1.0, 0.0]}
    found = compute_metrics(_file(tmp_path, [_row(task, value) for task, values in rewards.items() for value in values]), expected=6)
    overall = found["overall"]
    assert overall["mean_reward"] == 0.5
    # task sums less their share: 1, -1, 0; three clusters of six rollouts
    assert overall["standard_error"] == pytest.approx(math.sqrt(3 / 2 * 2) / 6)
    assert overall["pass_at_k"]["1"]["value"] == pytest.approx(0.5)
    assert overall["pass_at_k"]["2"]["value"] == pytest.approx(2 / 3)


def test_with_one_repeat_it_is_the_usual_one(tmp_path: Path) -> None:
    values = [0.0, 1.0, 1.0, 0.25]
    found = compute_metrics(_file(tmp_path, [_row(task, value) for task, value in enumerate(values)]), expected=4)
    sample = sum((value - mean(values)) ** 2 for value in values) / 3
    assert found["overall"]["standard_error"] == pytest.approx(math.sqrt(sample / 4))
    assert "between tasks only" in found["notes"][0]


def test_masked_and_unscored_rows_enter_nothing(tmp_path: Path) -> None:
    rows = [_row(0, 1.0), _row(1, 0.0, mask_sample=True), _row(2, None), _row(10**15, 0.0, taskset="other")]
    found = compute_metrics(_file(tmp_path, rows), expected=4)
    assert {key: found["overall"][key] for key in ("measured", "masked", "unscored", "mean_reward")} == {
        "measured": 2,
        "masked": 1,
        "unscored": 1,
        "mean_reward": 0.5,
    }
    assert found["by_taskset"]["s"]["mean_reward"] == 1.0
    assert found["by_taskset"]["s"]["standard_error"] is None
    assert found["by_taskset"]["other"]["tasks"] == 1


def test_nothing_written(tmp_path: Path) -> None:
    overall = compute_metrics(_file(tmp_path, []), expected=0)["overall"]
    assert overall["mean_reward"] is None
    assert overall["pass_at_k"] == {}


def test_all_and_majority_of_k_and_subsets(tmp_path: Path) -> None:
    rewards = {0: [1.0, 1.0, 0.0], 1: [0.0, 0.0, 1.0]}
    answers = {0: ["4", "4", "5"], 1: ["7", "7", "9"]}
    rows = [
        _row(task, reward, subset=("easy", "hard")[task], extracted_answer=answers[task][number])
        for task, values in rewards.items()
        for number, reward in enumerate(values)
    ]
    found = compute_metrics(_file(tmp_path, rows), expected=6)
    easy, hard = found["by_subset"]["easy"], found["by_subset"]["hard"]
    assert (easy["pass_all_k"]["2"]["value"], easy["pass_all_k"]["3"]["value"]) == (pytest.approx(1 / 3), 0.0)
    assert easy["majority_at_k"]["3"] == {"value": 1.0, "tasks": 1}
    # of two rollouts, one pair agrees on the right answer, and two are tied
    assert easy["majority_at_k"]["2"]["value"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert hard["majority_at_k"]["3"]["value"] == 0.0
    assert found["overall"]["majority_at_k"]["3"] == {"value": 0.5, "tasks": 2}


def test_a_task_with_a_row_that_has_no_answer_has_no_majority(tmp_path: Path) -> None:
    rows = [_row(0, 1.0, extracted_answer="4"), _row(0, 0.0), _row(1, 1.0, extracted_answer="4"), _row(1, 1.0, extracted_answer="4")]
    assert compute_metrics(_file(tmp_path, rows), expected=4)["overall"]["majority_at_k"]["2"] == {"value": 1.0, "tasks": 1}
