"""The journal of sessions to close: what a crash, a torn line and a full disk leave of it."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym import journal as module
from gym.servers.journal import Debt, Journal, read_debts


def debt(key: str) -> Debt:
    return Debt(key, "peer", "/close_session", {"resources_session_id": key})


def keys(path: Path) -> list[str]:
    return list(read_debts(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "env.journal"


def test_what_was_owed_and_not_paid_is_read_back(path: Path) -> None:
    journal = Journal(path)
    for key in "abc":
        journal.owe(debt(key))
    journal.paid("b")
    journal.paid("unknown")
    assert keys(path) == ["a", "c"]
    assert [found.body for found in Journal(path).debts] == [{"resources_session_id": "a"}, {"resources_session_id": "c"}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_journal_without_debts_goes_away_and_one_with_stays(path: Path) -> None:
    journal = Journal(path)
    journal.owe(debt("a"))
    journal.close()
    assert keys(path) == ["a"]
    journal = Journal(path)
    journal.paid("a")
    journal.close()
    assert not path.exists()
    assert list(path.parent.iterdir()) == []


@given(cut=st.integers(min_value=0, max_value=400))
def test_a_torn_end_costs_nothing_but_itself(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "env.journal"
    journal = Journal(path)
    for key in "abc":
        journal.owe(debt(key))
    journal.paid("a")
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    expected = ["a", "b", "c"][:whole] if whole < 4 else ["b", "c"]
    if whole == 3 and content[:cut].endswith(b'{"paid":"a"}'):
        expected = ["b", "c"]  # all but the newline is there
    assert keys(path) in (expected, ["a", "b", "c"][: whole + 1])
    again = Journal(path)
    again.owe(debt("new"))
    assert keys(path)[-1] == "new"
    assert set(expected) <= set(keys(path)) | {"a"}


@pytest.mark.parametrize("line", [b"12", b"null", b"[]", b'"text"', b"{}", b'{"owe":"x"}', b"\xff\xfe", b"x" * 1000])
def test_lines_that_are_no_records_are_skipped(path: Path, line: bytes) -> None:
    Journal(path).owe(debt("a"))
    with path.open("ab") as file:
        file.write(line + b"\n")
    assert keys(path) == ["a"]
    journal = Journal(path)
    journal.owe(debt("b"))
    assert keys(path) == ["a", "b"]


def test_a_write_that_takes_only_a_part_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(module.os, "write", lambda file, data: write(file, bytes(data)[:7]))
    journal = Journal(path)
    journal.owe(debt("a"))
    journal.owe(debt("b"))
    assert keys(path) == ["a", "b"]


def test_a_disk_that_fills_up_in_the_middle_of_a_line_spoils_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    journal = Journal(path)
    journal.owe(debt("a"))
    room = [9]

    def fills(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = bytes(data)[: room[0]]
        room[0] -= len(taken)
        return write(file, taken)

    monkeypatch.setattr(module.os, "write", fills)
    with pytest.raises(OSError, match="No space"):
        journal.owe(debt("b"))
    assert [found.key for found in journal.debts] == ["a"]
    journal.paid("a")  # cannot be noted, and does no harm
    monkeypatch.undo()
    journal.owe(debt("c"))
    assert keys(path) == ["a", "c"]


def test_the_file_is_made_anew_before_it_grows_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 2000)
    journal = Journal(path)
    journal.owe(debt("stays"))
    for index in range(500):
        journal.owe(debt(str(index)))
        journal.paid(str(index))
    assert path.stat().st_size < 2400
    assert keys(path) == ["stays"]


def test_a_compaction_that_fails_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path)
    journal.owe(debt("a"))
    with path.open("ab") as file:
        file.write(b'{"owe":"to')

    def fails(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    again = Journal(path)
    again.owe(debt("b"))
    assert keys(path) == ["a", "b"]
    assert [entry.name for entry in path.parent.iterdir()] == ["env.journal"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_real_disk_without_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        journal = Journal(disk / "env.journal")
        written: list[str] = []

        def fill() -> None:
            for index in range(1000):
                journal.owe(debt(str(index)))
                written.append(str(index))

        with pytest.raises(OSError, match="No space"):
            fill()
        assert keys(disk / "env.journal") == written
        (disk / "env.journal").unlink()
        journal.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
