"""One model server's record of its rollouts: order, fence, budgets, reports, and disks that are full."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.models.calls import CallNotes
from gym.models.capture import recorder as module
from gym.models.capture.folder import CaptureFolder, file_name
from gym.models.capture.recorder import Limits, Recorder, Recording
from gym.models.capture.records import read_calls
from gym.protocol.errors import ContractError

KEY = "r1"


def recorder(folder: Path, *, receipt_seconds: float = 3600, **limits: int) -> Recorder:
    return Recorder("model", CaptureFolder(folder / "captures" / "model"), Limits(**limits), receipt_seconds=receipt_seconds)


def begin(at: Recorder, text: str = "q", key: str = KEY) -> Recording:
    return at.begin(key, "responses", {"input": text}, CallNotes(), streamed=False, token_capture=False)


REPLY = {
    "id": "resp",
    "model": "m",
    "status": "completed",
    "output": [{"type": "message"}],
    "usage": {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
    },
}


def ask(at: Recorder, text: str = "q", key: str = KEY) -> None:
    begin(at, text, key).end(200, REPLY)


def close(at: Recorder, session: str | None = "s", *, keep: bool = False, key: str = KEY) -> Any:
    return orjson.loads(at.close(key, session, keep=keep, finish=lambda report, capture: None))


def lines_of(folder: Path, key: str = KEY) -> list[dict[str, Any]]:
    path = folder / "captures" / "model" / file_name(key)
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def refused(at: Recorder, key: str = KEY) -> ContractError:
    with pytest.raises(ContractError) as caught:
        begin(at, key=key)
    return caught.value


async def test_a_call_is_on_file_before_it_is_made_and_its_end_before_it_is_answered(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    recording = begin(at)
    (line,) = lines_of(tmp_path)
    assert (line["begin"], line["request"]) == (0, {"input": "q"})
    recording.end(200, REPLY)
    assert [next(iter(line)) for line in lines_of(tmp_path)] == ["begin", "end"]
    recording.end(500, None)  # what comes later counts for nothing
    assert len(lines_of(tmp_path)) == 2


async def test_what_an_earlier_call_said_is_not_written_again(tmp_path: Path) -> None:
    at, items = recorder(tmp_path), list[Any]()
    for turn in range(5):
        items.append({"role": "user", "content": f"{turn}" * 500})
        at.begin(KEY, "responses", {"input": list(items)}, CallNotes(), streamed=False, token_capture=False).end(200, REPLY)
    assert [len(line["request"]["input"]) for line in lines_of(tmp_path)[::2]] == [1] * 5
    assert read_calls(at.raw(KEY).splitlines())[-1].request == {"input": items}


async def test_the_report_of_a_rollout(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    ask(at)
    begin(at).end(429, {"error": {}}, category="rate_limit", error="slow down")
    begin(at).end(200, {**REPLY, "id": "half"}, complete=False, category="stream_truncated", error="it broke")
    report = close(at)
    assert report["metrics"].pop("latency_total_ms") > 0
    assert report["metrics"] == {
        "num_calls": 3,
        "num_failed_calls": 2,
        "tokens_in": 10,
        "tokens_out": 5,
        "tokens_reasoning": 2,
        "tokens_total": 15,
        "cached_tokens": 4,
    }
    assert (report["rollout_id"], report["model_server"], report["gaps"]) == (KEY, "model", [])
    assert report["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    good, failed, broken = report["calls"]
    assert (good["response_id"], good["finish_reason"], good["complete"], good["status_code"]) == ("resp", "stop", True, 200)
    assert (failed["error_category"], failed["error"], failed["status_code"]) == ("rate_limit", "slow down", 429)
    assert (broken["complete"], broken["error_category"]) == (False, "stream_truncated")
    assert not any({"request", "response"} & set(call) for call in report["calls"])


async def test_without_calls_there_is_a_gap_and_no_usage(tmp_path: Path) -> None:
    report = close(recorder(tmp_path))
    assert ([gap["code"] for gap in report["gaps"]], report["usage"], report["calls"]) == (["model_call_capture_no_records"], None, [])
    assert not (tmp_path / "captures").exists()


async def test_a_closed_rollout_takes_no_calls_and_says_the_same_again(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    ask(at)
    report = close(at)
    assert not list((tmp_path / "captures" / "model").iterdir())
    error = refused(at)
    assert (error.status, error.kind) == (410, "session_lost")
    assert close(at) == report
    with pytest.raises(ContractError) as caught:
        close(at, "another")
    assert caught.value.status == 409
    ask(at, key="r2")  # nobody else is concerned


async def test_a_rollout_is_begun_anew_under_a_key_that_was_used(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    ask(at, "old")
    close(at, "s1", keep=True)
    at.open(KEY, "s2")
    ask(at, "new")
    at.open(KEY, "s2")  # a repeat changes nothing
    assert [call.request["input"] for call in read_calls(at.raw(KEY).splitlines())] == ["new"]
    with pytest.raises(ContractError, match="by another session"):
        close(at, "s1")
    assert close(at, "s2")["metrics"]["num_calls"] == 1
    with pytest.raises(ContractError, match="already closed"):
        at.open(KEY, "s2")


async def test_kept_lines_are_there_until_they_are_retired(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    ask(at)
    assert close(at, keep=True)["kept"] is True
    assert len(read_calls(at.raw(KEY).splitlines())) == 1
    at.retire(KEY)
    at.retire(KEY)
    with pytest.raises(ContractError) as caught:
        at.raw(KEY)
    assert caught.value.status == 404
    assert refused(at).status == 410


@pytest.mark.parametrize("keep", [True, False])
async def test_a_server_that_was_killed_and_came_back_goes_on(tmp_path: Path, keep: bool) -> None:
    first = recorder(tmp_path, calls=3)
    ask(first)
    begin(first, "never answered")
    with (tmp_path / "captures" / "model" / file_name(KEY)).open("ab") as file:
        file.write(b'{"end": 1, "sta')  # it died while it wrote
    second = recorder(tmp_path, calls=3)
    ask(second, "after")
    assert refused(second).kind == "agent_budget_exhausted"
    report = close(second, keep=keep)
    assert [call["call_index"] for call in report["calls"]] == [0, 1, 2]
    assert report["metrics"]["num_failed_calls"] == 1
    details = [gap["detail"] for gap in report["gaps"]]
    assert details == ["call 1 was begun, and its end is not known", "1 line(s) of the capture cannot be read"]
    if keep:  # the file says by itself that it is closed
        assert refused(recorder(tmp_path)).status == 410


async def test_the_close_ends_calls_in_flight(tmp_path: Path) -> None:
    at, began = recorder(tmp_path), asyncio.Event()

    async def call() -> None:
        recording = begin(at)
        recording.partial = lambda: {"output": ["half"]}
        began.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(call())
    await began.wait()
    assert len(at) == 1
    report = close(at, keep=True)
    with pytest.raises(asyncio.CancelledError):
        await task
    (summary,) = report["calls"]
    assert (summary["error_category"], summary["complete"], summary["status_code"]) == ("cancelled", False, 499)
    assert read_calls(at.raw(KEY).splitlines())[0].response == {"output": ["half"]}
    assert len(at) == 0


async def test_a_budget_of_calls(tmp_path: Path) -> None:
    at = recorder(tmp_path, calls=2)
    ask(at)
    begin(at).end(500, None, category="upstream_error")
    error = refused(at)
    assert (error.status, error.kind, error.terminal) == (400, "agent_budget_exhausted", True)
    assert error.message == "rollout r1 has made 2 calls, and max_calls_per_rollout is 2"
    ask(at, key="r2")
    report = close(at)
    assert (report["budget_exhausted"], report["metrics"]["num_calls"]) == ("max_calls_per_rollout", 2)
    assert "budget_exhausted" not in close(at, key="r2")


async def test_a_rollout_whose_calls_fail_one_after_the_other_is_refused_more_and_says_so(tmp_path: Path) -> None:
    at = recorder(tmp_path, failures=2)

    def fail(category: str) -> None:
        begin(at).end(503, None, category=category, error="it is down")

    for category in ("upstream_error", "client_error", "cancelled"):  # the last two are the agent's own doing
        fail(category)
    ask(at)
    fail("timeout")
    assert close(recorder(tmp_path, failures=2), keep=True).get("failed") is None

    (tmp_path / "again").mkdir()
    at = recorder(tmp_path / "again", failures=2)
    ask(at)
    fail("connection")
    fail("rate_limit")
    error = refused(at)
    assert (error.status, error.kind, error.terminal) == (400, "model_failed", True)
    assert error.message == "the last 2 calls of rollout r1 failed, and it makes no more"
    restarted = recorder(tmp_path / "again", failures=2)
    assert refused(restarted).kind == "model_failed"
    assert close(restarted)["failed"] == "the last 2 model calls failed one after the other: rate_limit: it is down"


async def test_a_budget_of_tokens_is_looked_at_before_a_call(tmp_path: Path) -> None:
    at = recorder(tmp_path, tokens=16)
    ask(at)
    ask(at)
    assert refused(at).message == "rollout r1 has made 30 tokens, and max_tokens_per_rollout is 16"
    assert close(at)["budget_exhausted"] == "max_tokens_per_rollout"


class Disk:
    """os.write, which a test can have fail after some bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, file: int, data: Any) -> int:
        if self.room is None:
            return self._write(file, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, bytes(data)[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 30])
@pytest.mark.parametrize("broken", ["begin", "end"])
async def test_a_full_disk_costs_the_record_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, broken: str) -> None:
    at, disk = recorder(tmp_path), Disk(monkeypatch)
    ask(at, "before")
    disk.room = room if broken == "begin" else None
    recording = begin(at, "lost")
    disk.room = room
    recording.end(200, REPLY)
    disk.room = None
    ask(at, "after")
    calls = read_calls(at.raw(KEY).splitlines())
    assert [call.request["input"] for call in calls if call.complete] == ["before", "after"]
    report = close(at, keep=True)
    assert "could not be written: No space left on device" in report["gaps"][0]["detail"]
    assert {gap["code"] for gap in report["gaps"]} == {"model_call_capture_incomplete"}


async def test_a_full_disk_is_remembered_by_a_server_that_came_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at, disk = recorder(tmp_path), Disk(monkeypatch)
    ask(at)
    disk.room = 0
    ask(at)
    disk.room = None
    report = close(recorder(tmp_path))
    assert ([gap["detail"] for gap in report["gaps"]], report["metrics"]["num_calls"]) == (["a line could not be written"], 1)
    assert not list((tmp_path / "captures" / "model").iterdir())


async def test_what_cannot_be_said_in_json_is_a_gap_and_no_error(tmp_path: Path) -> None:
    at = recorder(tmp_path)
    begin(at).end(200, {"id": {1}})  # no handler answers so; the record of one that did must not break its call
    assert "TypeError" in close(at)["gaps"][0]["detail"]


def open_files() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_files_are_dropped_and_remembered_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROLLOUTS", 3)
    monkeypatch.setattr(module, "RECEIPTS", 3)
    monkeypatch.setattr("gym.models.capture.folder._OPEN_FILES", 2)
    at, files = recorder(tmp_path), open_files()
    keys = [f"r{number}" for number in range(8)]
    for text in ("first", "second"):
        for key in keys:
            ask(at, text * 50, key)
    assert open_files() - files <= 2
    assert len(at._rollouts) <= 3
    for key in keys:
        report = close(at, key=key)
        assert ([call["call_index"] for call in report["calls"]], report["gaps"]) == ([0, 1], [])
    assert len(at._receipts) == 3
    assert not list((tmp_path / "captures" / "model").iterdir())
    at.stop()


async def test_a_receipt_goes_when_its_time_is_over(tmp_path: Path) -> None:
    at = recorder(tmp_path, receipt_seconds=0)
    ask(at)
    close(at)
    ask(at, "as if it had never been")
    assert close(at)["metrics"]["num_calls"] == 1


def test_every_key_has_a_file_name_of_its_own() -> None:
    long = ["k" * 300, "k" * 299 + "l", "k" * 200 + "m" * 100]
    names = [file_name(key) for key in ("r1", "r1-a1", "k" * 200, *long)]
    assert (names[0], len(set(names)), max(map(len, names)) < 220) == ("r1.jsonl", 6, True)
