"""A run that is resumed: nothing lost, nothing twice, and nothing of somebody else's."""

import fcntl
import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gym.client import CallError
from gym.config.errors import UserError
from gym.rollouts.collect import check_before_start
from gym.rollouts.lines import LineTable
from gym.rollouts.store import cut_torn_line

if TYPE_CHECKING:
    from conftest import Bench


def _killed(bench: "Bench", *, lines: int, torn: bytes = b"") -> None:
    """Make the files of a finished run those of one that was killed after `lines` rows, with three more attempts out."""
    manifest = bench.files.manifest.read_bytes()
    head, _, _ = manifest.partition(b'"next_attempt": {')
    bench.files.manifest.write_bytes(head + b'"next_attempt": {}\n}\n')
    rows = bench.files.output.read_bytes().splitlines(keepends=True)
    bench.files.output.write_bytes(b"".join(rows[:lines]) + torn)
    ids = [row["_ng_rollout_id"] for row in bench.output_of(rows)][: lines + 3]
    bench.files.attempts.write_bytes(b"".join(b'{"rollout_id":"%b","attempt":0}\n' % one.encode() for one in ids) + torn)


def _spoil(path: Path, content: bytes | None, *, anew: bool) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if anew else path.read_bytes() + content)


def _somebodys(path: Path, *, folder: bool) -> Path:
    if folder:
        path.mkdir()
        path = path / "1.jsonl"
    path.write_bytes(b"somebody's\n")
    return path


async def test_only_what_has_no_row_is_run_and_gets_a_new_attempt(bench: "Bench") -> None:
    bench.rows(20)
    await bench.collect()
    _killed(bench, lines=8, torn=b'{"_ng_rollout_id":"19-')
    again = bench.script(lambda *_: bench.result())
    summary = await bench.collect(resume=True)
    assert summary.coverage.measured == 20
    assert len(again.calls) == 12
    assert Counter(attempt for _, attempt in again.calls) == {0: 9, 1: 3}, "what was out is tried as a new attempt"
    assert summary.coverage.attempts == 23
    assert bench.manifest["resumed_by"] == ["run"]
    assert sorted(bench.manifest["next_attempt"].values()) == [1] * 17 + [2] * 3


async def test_a_finished_run_runs_nothing_and_says_the_same_account(bench: "Bench") -> None:
    bench.rows([{"instance_id": f"t{index}"} for index in range(6)] + [b"no json\n"])
    bench.script(
        lambda rollout, *_: {"0-0": bench.failure(terminal=True), "1-0": bench.result(None), "2-0": bench.masked()}.get(
            rollout, bench.result(0.5)
        )
    )
    before = (await bench.collect(attempts=2)).coverage
    again = bench.script(lambda *_: bench.result())
    after = await bench.collect(attempts=2, resume=True)
    assert again.calls == []
    assert after.coverage == before
    assert after.metrics["overall"]["mean_reward"] == 0.5


async def test_failures_are_tried_again_while_attempts_last(bench: "Bench") -> None:
    bench.rows(3)
    bench.script(lambda rollout, *_: bench.failure() if rollout == "1-0" else bench.result())
    assert (await bench.collect(attempts=2)).coverage.attempts_exhausted == 1
    again = bench.script(lambda *_: bench.result())
    assert (await bench.collect(attempts=2, resume=True)).coverage.failed == 1
    assert again.calls == []
    summary = await bench.collect(attempts=3, resume=True)
    assert again.calls == [("1-0", 2)]
    assert (summary.coverage.measured, summary.coverage.attempts_exhausted, summary.exit_code) == (3, 0, 0)


async def test_a_dead_server_of_the_first_run_costs_nothing_in_the_second(bench: "Bench") -> None:
    bench.rows(4)
    bench.script(lambda *_: CallError("nobody listens", kind="agent_request_failed", delivery="not_sent"))
    assert (await bench.collect(attempts=2)).coverage.failed == 4
    bench.script(lambda *_: bench.result())
    assert (await bench.collect(attempts=2, resume=True)).coverage.measured == 4


async def test_nothing_to_resume_is_begun(bench: "Bench") -> None:
    bench.rows(2)
    bench.files.materialized.write_bytes(b"killed before the first dispatch\n")
    assert (await bench.collect(resume=True)).coverage.measured == 2


@pytest.mark.parametrize("name", ["failures", "coverage", "metrics", "attempts", "model_calls"])
async def test_what_is_there_without_a_run_is_not_removed(bench: "Bench", name: str) -> None:
    bench.rows(2)
    path = _somebodys(getattr(bench.files, name), folder=name == "model_calls")
    with pytest.raises(UserError, match=r"has no manifest .* replace it with --overwrite"):
        await bench.collect(resume=True)
    assert path.read_bytes() == b"somebody's\n"


async def test_failures_that_are_gone_are_missed(bench: "Bench") -> None:
    bench.rows([{"instance_id": "a"}, b"no json\n"])
    await bench.collect()
    bench.files.failures.unlink()
    with pytest.raises(UserError, match=r"out_failures.jsonl is not as the run left it"):
        await bench.collect(resume=True)


async def test_what_changed_is_named(bench: "Bench") -> None:
    bench.rows(3)
    await bench.collect(limit=2)
    bench.config_keys = {"policy_model.model": "1", "policy_model.temperature": "3", "policy_model.top_p": "4"}
    with pytest.raises(UserError, match=r"another --limit \(2 then, none now\), policy_model.temperature.*policy_model.top_p"):
        await bench.collect(resume=True)
    assert (await bench.collect(resume=True, allow_unsafe_resume=True)).coverage.expected == 2
    assert bench.manifest["changed_on_resume"] == ["--limit", "policy_model.temperature", "policy_model.top_p"]


async def test_other_rows_are_refused_or_left_alone(bench: "Bench") -> None:
    bench.rows(3)
    await bench.collect()
    bench.rows(4)
    with pytest.raises(UserError, match="are not those that"):
        await bench.collect(resume=True)
    assert (await bench.collect(resume=True, allow_unsafe_resume=True)).coverage.expected == 3
    assert bench.manifest["changed_on_resume"] == ["--input"]


async def test_what_a_killed_run_changed_is_not_forgotten(bench: "Bench") -> None:
    bench.rows(3)
    await bench.collect()
    _killed(bench, lines=2)
    with bench.files.attempts.open("ab") as journal:
        journal.write(b'{"resumed_by":"second","changed_on_resume":["policy_model.model"]}\n{"rollout_id":"2-0","attempt":1}\n')
    summary = await bench.collect(resume=True)
    assert bench.manifest["resumed_by"] == ["second", "run"]
    assert bench.manifest["changed_on_resume"] == ["policy_model.model"]
    assert summary.past is not None
    assert summary.past.run_ids == ["run", "second"]


async def test_the_records_tell_what_was_there_and_what_is_new(bench: "Bench") -> None:
    bench.rows([{"instance_id": f"t{index}"} for index in range(10)] + [b"no json\n"])
    await bench.collect()
    _killed(bench, lines=4, torn=b"{half")
    launches: list[dict[str, Any]] = []
    summary = await bench.collect(resume=True, on_launch=lambda launch: launches.append(launch.as_dict()))
    (launch,) = launches
    assert (launch["expected"], launch["bad_rows"]) == (11, 1)
    assert launch["resumed"] == {
        "run_ids": ["run"],
        "ended_before": 5,
        "to_run": 6,
        "attempts_before": 7,
        "changed": [],
        "torn_bytes_cut": {"out.jsonl": 5, "out_attempts.jsonl": 5},
    }
    done = summary.as_dict()
    assert done["resumed"] == {"run_ids": ["run"], "ended_before": 5, "measured_now": 6, "attempts_now": 6}
    assert (done["coverage"]["measured"], done["coverage"]["failed"], done["coverage"]["attempts"]) == (10, 1, 13)


async def test_credentials_that_were_refused_are_tried_again(bench: "Bench") -> None:
    bench.rows(3)
    refusal = bench.failure("agent_request_failed", http_status=401, terminal=True, stage="agent")
    bench.script(lambda rollout, *_: refusal if rollout == "1-0" else bench.result())
    assert (await bench.collect(concurrency=1)).exit_code == 1
    bench.script(lambda *_: bench.result())
    assert (await bench.collect(resume=True)).coverage.measured == 3


async def test_a_server_that_stays_dead_can_be_waited_for_as_often_as_one_likes(bench: "Bench") -> None:
    bench.rows(1)
    dead = CallError("nobody listens", kind="agent_request_failed", delivery="not_sent")
    bench.script(lambda *_: dead)
    for number in range(4):
        assert (await bench.collect(attempts=100, resume=True)).coverage.attempts == 100 * (number + 1)
    bench.script(lambda *_: bench.result())
    assert (await bench.collect(attempts=100, resume=True)).coverage.measured == 1


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("output", b'{"text":"somebody\'s"}\n', "out.jsonl:4 is no line of this run"),
        ("output", b"no json\n", "out.jsonl:4 is no line of this run"),
        ("output", b'{"_ng_rollout_id":"9-0","_ng_attempt_index":0,"reward":1.0}\n', "out.jsonl:4 is no line of this run"),
        (
            "output",
            b'{"_ng_rollout_id":"0-0","_ng_attempt_index":0,"reward":1.0}\n',
            "out.jsonl:4: rollout '0-0' stands there a second time",
        ),
        ("failures", b"[]\n", "out_failures.jsonl:1 is no line of this run"),
        ("output", b'{"text":1}\nwithout an end', "out.jsonl:4 is no line of this run"),
        ("output", None, "out.jsonl is gone, and rollouts were in it"),
        ("materialized", None, "out_materialized_inputs.jsonl is gone"),
        ("failures", b'{"_ng_rollout_id":"0-0"}\n', "out_failures.jsonl:1 is no line of this run"),
        ("materialized", b"{}\n", "is not as the run wrote it"),
        ("manifest", None, "has no manifest"),
        ("manifest", b"{}", "is no manifest of this version"),
    ],
)
async def test_a_foreign_file_is_refused_and_left_as_it_is(bench: "Bench", file: str, content: bytes | None, said: str) -> None:
    bench.rows(3)
    await bench.collect()
    path: Path = getattr(bench.files, file)
    _spoil(path, content, anew=file == "manifest")
    before = {one.name: one.read_bytes() for one in bench.folder.iterdir() if not one.name.endswith(".lock")}
    with pytest.raises(UserError, match=said.replace(".", r"\.")):
        await bench.collect(resume=True)
    assert {one.name: one.read_bytes() for one in bench.folder.iterdir() if not one.name.endswith(".lock")} == before


def test_a_second_collector_a_file_for_a_folder_and_no_leave_are_told_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    with (tmp_path / "out_run.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another collector"):
            check_before_start(output, overwrite=False, inputs=[], resume=True)
    check_before_start(output, overwrite=False, inputs=[], resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file"):
        check_before_start(tmp_path / "file" / "deep" / "out.jsonl", overwrite=False, inputs=[])
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError, match="no leave to write"):
        check_before_start(tmp_path / "new" / "out.jsonl", overwrite=False, inputs=[])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_a_folder_on_a_disk_that_is_read_only(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(UserError, match="no leave to write"):
            check_before_start(tmp_path / "out.jsonl", overwrite=False, inputs=[])
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("content", "kept"), [(b"", b""), (b"a", b""), (b"a\n", b"a\n"), (b"a\nb", b"a\n"), (b"a\n" + b"b" * 200_000, b"a\n")]
)
def test_a_torn_last_line_is_cut(tmp_path: Path, content: bytes, kept: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert cut_torn_line(path) == len(content) - len(kept)
    assert path.read_bytes() == kept
    assert cut_torn_line(tmp_path / "none") == 0


def test_a_table_of_lines_finds_each() -> None:
    table = LineTable(5000)
    ids = [f"{index}-{random.random()}" for index in range(5000)]
    for one in ids:
        table.add(one)
    assert [table.line(one) for one in ids] == list(range(5000))
    assert table.line("other") is None
    with pytest.raises(UserError, match="the same id"):
        table.add(ids[7])


async def test_a_run_cut_anywhere_is_made_whole(bench: "Bench") -> None:
    """Every file cut at some byte, as a kill or a lost disk cache may leave them."""
    bench.rows(30)
    await bench.collect()
    _killed(bench, lines=30)
    saved = bench.folder.with_name("saved")
    shutil.copytree(bench.folder, saved)
    dice = random.Random(7)
    for _ in range(20):
        shutil.rmtree(bench.folder)
        shutil.copytree(saved, bench.folder)
        for path in (bench.files.output, bench.files.attempts):
            with path.open("r+b") as file:
                file.truncate(dice.randrange(path.stat().st_size))
        bench.script(lambda *_: bench.result())
        summary = await bench.collect(resume=True)
        assert summary.coverage.measured == 30
