"""The collector's parts: files, lock, store, progress, options, duplicates."""

import os
from pathlib import Path

import pytest

from gym.config.errors import UserError
from gym.protocol.rollouts import Outcome
from gym.rollouts.dispatch import BACKOFF_CAP, backoff
from gym.rollouts.duplicates import DuplicateFinder
from gym.rollouts.files import OutputFiles, write_json
from gym.rollouts.ledger import Ledger
from gym.rollouts.lock import run_lock
from gym.rollouts.options import ATTEMPTS_VARIABLE, CollectOptions, attempts_from
from gym.rollouts.outcomes import call_failure
from gym.rollouts.store import LineFile, StoreError


def test_names_beside_the_output() -> None:
    files = OutputFiles(Path("results/out.jsonl"))
    assert [path.name for path in files.results] == [
        "out.jsonl",
        "out_failures.jsonl",
        "out_materialized_inputs.jsonl",
        "out_manifest.json",
        "out_attempts.jsonl",
        "out_coverage.json",
        "out_aggregate_metrics.json",
    ]
    assert files.lock == Path("results/out_run.lock")


def test_an_output_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        OutputFiles(tmp_path).check_new(overwrite=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no plain file"):
        OutputFiles(tmp_path / "pipe").check_new(overwrite=True)


def test_any_file_of_the_stem_is_an_existing_output(tmp_path: Path) -> None:
    (tmp_path / "out_failures.jsonl").touch()
    files = OutputFiles(tmp_path / "out.jsonl")
    with pytest.raises(UserError, match=r"out_failures\.jsonl"):
        files.check_new(overwrite=False)
    files.check_new(overwrite=True)


def test_a_side_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_bytes() == b'{\n  "a": 1\n}\n'
    assert [child.name for child in tmp_path.iterdir()] == ["a.json"]


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with run_lock(path), pytest.raises(UserError, match=f"process {os.getpid()} on"), run_lock(path):
        pass
    with run_lock(path):
        pass


def test_a_line_file_stops_at_its_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(tmp_path / "a.jsonl")
    file.write(b"one\n")
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 3:
            return real(descriptor, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StoreError, match="No space left"):
        file.write(b"two two\n"[:6])
    monkeypatch.setattr(os, "write", real)
    assert (tmp_path / "a.jsonl").read_bytes() == b"one\n"
    with pytest.raises(StoreError, match="before"):
        file.write(b"three\n")
    file.close()


def test_attempts_come_from_the_option_the_environment_or_three() -> None:
    assert attempts_from(5, {ATTEMPTS_VARIABLE: "2"}) == 5
    assert attempts_from(None, {ATTEMPTS_VARIABLE: "2"}) == 2
    assert attempts_from(None, {}) == 3
    for bad in ("0", "-1", "many", "1.5", "1000"):
        with pytest.raises(UserError, match=ATTEMPTS_VARIABLE):
            attempts_from(None, {ATTEMPTS_VARIABLE: bad})


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"num_repeats": 0}, {"attempts": 0}, {"limit": 0}])
def test_options_that_cannot_be_meant(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match="must lie between"):
        CollectOptions(input=Path("a"), output=Path("b"), **wrong)  # type: ignore[arg-type]


def test_the_back_off_doubles_up_to_its_cap() -> None:
    for tries, most in [(1, 1), (2, 2), (3, 4), (6, BACKOFF_CAP), (5000, BACKOFF_CAP)]:
        assert most / 2 <= backoff(tries) <= most


def test_duplicates_are_found_once_each() -> None:
    finder = DuplicateFinder()
    for owner, name in enumerate(["a", "b", "a", "c", "a"]):
        finder.add(name, owner, owner + 1)
    finder.add("b", 1, 9)
    assert [(clash.first_line, clash.second_line) for clash in finder.clashes()] == [(1, 3)]


def test_a_ledger_owes_what_is_out_again() -> None:
    ledger = Ledger(2, 1, 3)
    assert (ledger.expected, ledger.count(Outcome.FAILED), ledger.count(Outcome.OWED)) == (3, 1, 2)
    assert ledger.reserve(0) == 0
    assert ledger.charge(0, call_failure(RuntimeError("x")))
    ledger.settle(0, Outcome.FAILED, kind="agent_request_failed", again=True)
    assert ledger.failed_by_kind() == {"agent_request_failed": 1, "invalid_task": 1}
    assert ledger.reserve(0) == 1
    assert (ledger.count(Outcome.FAILED), ledger.count(Outcome.OWED)) == (1, 2)
    ledger.settle(0, Outcome.MEASURED, reward=0.5)
    assert (ledger.done, ledger.mean_reward) == (2, 0.5)


def test_more_kinds_of_failure_than_a_byte_can_tell() -> None:
    ledger = Ledger(400, 0, 3)
    for rollout in range(400):
        ledger.reserve(rollout)
        ledger.settle(rollout, Outcome.FAILED, kind=f"bench:kind_{rollout}")
    by_kind = ledger.failed_by_kind()
    assert sum(by_kind.values()) == 400
    assert by_kind["other"] == 400 - 254
