"""The collector as a process: signals, a full disk, a kill."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.small_disk import small_disk, why_no_disk

_PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
import orjson
from gym.config.plan import Route
from gym.rollouts.collect import collect
from gym.rollouts.options import CollectOptions
from gym.rollouts.targets import Targets

class FakeDispatcher:
    async def run(self, environment, body):
        request = orjson.loads(body)
        index = int(request["episode_id"]["rollout_id"].partition("-")[0])
        await asyncio.sleep(60 if index >= int(sys.argv[2]) else 0.002)
        result = {"responses_create_params": {"input": "q"}, "response": {"output": ["x" * 1000]}, "reward": 1.0}
        reply = {"result": result}
        if int(sys.argv[4]):
            once, ever, masked = index % 10 == 1 and not request["episode_id"]["attempt"], index % 10 == 2, index % 100 == 3
            if once or ever:
                reply = {"failure": {"failure_reason": "broke", "terminal": ever, "failure_kind": "agent_run_error"}}
            if masked:
                reply = {"result": {**result, "reward": None, "mask_sample": True}}
        return 200, orjson.dumps({"episode_id": request["episode_id"], "task_id": request["task"]["task_id"], **reply})

folder = Path(sys.argv[1])
if int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
again = {"resume": True} if int(sys.argv[4]) else {"overwrite": True}
options = CollectOptions(input=folder / "rows.jsonl", output=folder / "out.jsonl", concurrency=8, **again)
summary = asyncio.run(collect(options, Targets({}, {"env": Route("env")}), FakeDispatcher(), run_id="run", config_keys={}))
print(summary.problem or "", file=sys.stderr)
sys.exit(summary.exit_code)
"""


def _start(folder: Path, *, rows: int, stuck_from: int, file_limit: int = 0, resume: bool = False) -> "subprocess.Popen[str]":
    (folder / "rows.jsonl").write_bytes(b"".join(b'{"instance_id":"t%d"}\n' % index for index in range(rows)))
    arguments = [sys.executable, "-c", _PROGRAM, str(folder), str(stuck_from), str(file_limit), str(int(resume))]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])


def _wait_for_lines(path: Path, number: int) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or path.read_bytes().count(b"\n") < number:
        assert time.monotonic() < deadline, f"{path} did not get {number} lines"
        time.sleep(0.01)


def _lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert not content or content.endswith(b"\n")
    return [orjson.loads(line) for line in content.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    process = _start(tmp_path, rows=40, stuck_from=20)
    _wait_for_lines(tmp_path / "out.jsonl", 20)
    _wait_for_lines(tmp_path / "out_attempts.jsonl", 28)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    coverage = orjson.loads((tmp_path / "out_coverage.json").read_bytes())
    assert (coverage["measured"], coverage["owed"], coverage["expected"], coverage["interrupted"]) == (20, 20, 40, True)
    assert len(_lines(tmp_path / "out.jsonl")) == 20
    assert len(orjson.loads((tmp_path / "out_manifest.json").read_bytes())["next_attempt"]) == 28
    assert orjson.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())["overall"]["measured"] == 20
    assert not (tmp_path / "out_attempts.jsonl").exists()


def test_a_kill_leaves_whole_rows_and_the_attempts_that_were_out(tmp_path: Path) -> None:
    process = _start(tmp_path, rows=40, stuck_from=20)
    _wait_for_lines(tmp_path / "out.jsonl", 20)
    _wait_for_lines(tmp_path / "out_attempts.jsonl", 28)
    process.kill()
    process.communicate(timeout=20)
    written = {row["_ng_rollout_id"] for row in _lines(tmp_path / "out.jsonl")}
    reserved = {row["rollout_id"] for row in _lines(tmp_path / "out_attempts.jsonl")}
    assert len(written) == 20
    assert written < reserved
    # The lock went with the process: a new run can begin.
    again = _start(tmp_path, rows=20, stuck_from=20)
    again.communicate(timeout=20)
    assert again.returncode == 0
    assert len(_lines(tmp_path / "out.jsonl")) == 20


def test_a_full_disk_ends_the_run_and_cuts_no_row(tmp_path: Path) -> None:
    process = _start(tmp_path, rows=60, stuck_from=60, file_limit=20_000)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "out.jsonl cannot be written: File too large" in errors
    assert "Traceback" not in errors
    written = _lines(tmp_path / "out.jsonl")
    assert 5 < len(written) < 20
    coverage = orjson.loads((tmp_path / "out_coverage.json").read_bytes())
    assert coverage["measured"] == len(written)
    assert coverage["expected"] == coverage["measured"] + coverage["owed"] == 60


def test_a_disk_without_room(tmp_path: Path) -> None:
    if reason := why_no_disk():
        pytest.skip(reason)
    with small_disk(tmp_path / "disk", "64k"):
        disk = tmp_path / "disk"
        process = _start(disk, rows=100, stuck_from=100)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "No space left on device" in errors
        assert "Traceback" not in errors
        assert _lines(disk / "out.jsonl")


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_every_rollout_is_there_once(tmp_path: Path) -> None:
    dice = random.Random(11)
    rows, kills = 1500, 0
    for _ in range(20):
        process = _start(tmp_path, rows=rows, stuck_from=rows, resume=True)
        _wait_for_start(process, tmp_path / "out_run.lock")
        time.sleep(dice.uniform(0.0, 0.15))
        kills += process.poll() is None
        process.kill()
        process.communicate(timeout=20)
    last = _start(tmp_path, rows=rows, stuck_from=rows, resume=True)
    _, errors = last.communicate(timeout=60)
    assert last.returncode == 76, errors
    assert kills >= 10
    ids = [row["_ng_rollout_id"] for row in _lines(tmp_path / "out.jsonl")]
    assert sorted(ids) == sorted(f"{index}-0" for index in range(rows) if index % 10 != 2)
    failed = Counter((row["_ng_rollout_id"], row["_ng_attempt_index"]) for row in _lines(tmp_path / "out_failures.jsonl"))
    assert set(failed.values()) == {1}
    coverage = orjson.loads((tmp_path / "out_coverage.json").read_bytes())
    ended = {outcome: coverage[outcome] for outcome in ("expected", "measured", "masked", "unscored", "failed", "owed")}
    assert ended == {"expected": rows, "measured": rows - 165, "masked": 15, "unscored": 0, "failed": 150, "owed": 0}
    tried_again = 150 + 2 * 15
    assert rows <= coverage["attempts"] <= rows + tried_again + 8 * kills, "only what was in flight is done again"
    assert coverage["counted_failures"] == sum(not one.endswith("2-0") for one, _ in failed) + 15


def _wait_for_start(process: "subprocess.Popen[str]", lock: Path) -> None:
    """Until the process has the lock: before that a kill meets Python's start only."""
    deadline = time.monotonic() + 30
    while process.poll() is None and not (lock.exists() and f'"pid":{process.pid},'.encode() in lock.read_bytes()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
