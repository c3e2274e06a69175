"""`gym eval aggregate` and `gym eval compare`, as commands on files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

GYM = str(Path(sys.executable).with_name("gym"))


def _gym(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run([GYM, "eval", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def _rollout(run: str, task: str, repeat: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {
        "_ng_run_id": run,
        "_ng_rollout_id": f"{task}-{repeat}",
        "_ng_rollout_index": repeat,
        "_ng_attempt_index": 0,
        "_ng_task_index": 0,
        "_ng_task_id": {"taskset": "s", "task_id": task},
        "reward": reward,
        **more,
    }


def _file(path: Path, *rows: object) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def _runs(folder: Path, name: str, rewards: dict[str, list[float]]) -> Path:
    rows = [_rollout(name, task, repeat, reward) for task, values in rewards.items() for repeat, reward in enumerate(values)]
    return _file(folder / f"{name}.jsonl", *rows)


def test_shards_make_one_account(tmp_path: Path) -> None:
    first = _runs(tmp_path, "first", {"a": [1.0], "b": [0.0]})
    second = _file(tmp_path / "second.jsonl", _rollout("second", "a", 1, 0.0), _rollout("second", "c", 0, 0.0, mask_sample=True))
    code, out, _ = _gym("aggregate", first, second, "--json", "--output", tmp_path / "metrics.json")
    metrics = orjson.loads(out)
    assert code == 0
    assert metrics == orjson.loads((tmp_path / "metrics.json").read_bytes())
    assert {name: metrics["overall"][name] for name in ("tasks", "measured", "masked", "mean_reward")} == {
        "tasks": 2,
        "measured": 3,
        "masked": 1,
        "mean_reward": pytest.approx(1 / 3),
    }
    code, out, errors = _gym("aggregate", first, second)
    assert (code, out.splitlines()[1].split()[:5]) == (0, ["all", "2", "3", "1", "0"])
    assert "1 masked rows are left out" in errors


def test_rows_of_other_tools_are_named_by_their_index(tmp_path: Path) -> None:
    path = _file(
        tmp_path / "out.jsonl", {"_ng_task_index": 0, "reward": 1}, {"_ng_task_index": 0, "reward": 0}, {"_ng_task_index": 1, "reward": 1}
    )
    code, out, _ = _gym("aggregate", path, "--json")
    assert (code, orjson.loads(out)["overall"]["tasks"]) == (0, 2)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"_ng_failure_class": "agent_request_failed"}, "a failed attempt, as they stand in the failures file"),
        ({"_ng_task_index": 0}, "it has no 'reward'"),
        ({"_ng_task_index": 0, "reward": "1"}, "its reward is '1', not a number"),
        ({"_ng_task_index": 0, "reward": True}, "its reward is True, not a number"),
        ({"reward": 1.0}, "it names no task"),
        ([1], "the row is a list, not an object"),
    ],
)
def test_a_line_that_is_no_rollout_is_named(tmp_path: Path, row: object, said: str) -> None:
    path = _file(tmp_path / "out.jsonl", _rollout("r", "a", 0, 1.0), row)
    code, out, errors = _gym("aggregate", path, "--output", tmp_path / "metrics.json")
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert errors.startswith(f"{path}:2: ")
    assert said in errors
    assert not (tmp_path / "metrics.json").exists()


def test_no_rollout_counts_twice(tmp_path: Path) -> None:
    path = _runs(tmp_path, "run", {"a": [1.0]})
    code, _, errors = _gym("aggregate", path, path)
    assert (code, errors) == (1, f"{path}:1: rollout a-0 is there twice: give each output once\n")


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    path = _runs(tmp_path, "run", {"a": [1.0]})
    before = path.read_bytes()
    code, _, errors = _gym("aggregate", path, "--output", path)
    assert (code, "none of the inputs" in errors, path.read_bytes()) == (1, True, before)


def test_two_runs_are_compared_task_by_task(tmp_path: Path) -> None:
    a = _runs(tmp_path, "a", {"same": [1.0, 1.0], "gained": [0.0, 0.0], "lost": [1.0, 0.0], "less": [0.5, 0.5], "left": [1.0]})
    b = _runs(
        tmp_path, "b", {"same": [1.0, 1.0], "gained": [1.0, 0.0], "lost": [0.0, 0.0], "less": [0.5, 0.25], "new": [1.0], "more": [1.0]}
    )
    code, out, _ = _gym("compare", a, b)
    assert code == 0
    assert out.splitlines()[0] == f"4 tasks measured in both; left out: 1 measured in {a} alone, 2 measured in {b} alone"
    assert "1 better, 2 worse, 1 the same" in out
    assert "gained 1: gained" in out
    assert "lost 1: lost" in out
    found = orjson.loads(_gym("compare", a, b, "--json")[1])
    assert found["means"] == [pytest.approx(2 / 4), pytest.approx((1 + 0.5 + 0.375) / 4)]
    assert found["difference"]["mean"] == pytest.approx(-0.03125)
    assert found["lost"] == [{"taskset": "s", "task_id": "lost", "passed": [1, 0], "measured": [2, 2]}]


def test_runs_without_a_common_task_are_refused(tmp_path: Path) -> None:
    code, out, errors = _gym("compare", _runs(tmp_path, "a", {"x": [1.0]}), _runs(tmp_path, "b", {"y": [1.0]}))
    assert (code, out) == (1, "")
    assert "no task that was measured in both" in errors


@pytest.mark.parametrize("command", ["aggregate", "report"])
def test_a_side_file_is_told_from_rollouts(tmp_path: Path, command: str) -> None:
    rollouts = _runs(tmp_path, "my_run", {"a": [1.0]})
    for name in ("my_run_coverage.json", "my_run_failures.jsonl"):
        side = _file(tmp_path / name)
        code, out, errors = _gym(command, side)
        assert (code, out, errors) == (1, "", f"{side} holds no rollouts, it stands beside them: give {rollouts}\n")
    assert not list(tmp_path.glob("*.html"))


def test_no_rollout_is_said_to_be_none(tmp_path: Path) -> None:
    code, _, errors = _gym("aggregate", _file(tmp_path / "none.jsonl"))
    assert (code, errors) == (0, "there is no rollout: nothing was measured\n")
