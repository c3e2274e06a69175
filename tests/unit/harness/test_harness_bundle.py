"""Bundles out of archives: checked, made once, and never from the network once they are there."""

import hashlib
import io
import tarfile
import threading
from pathlib import Path

import pytest

from gym.config.errors import UserError
from gym.harness.bundle import STAMP, Bundle, ensure
from gym.harness.npm_piece import Piece


def archive(cache: Path, name: str, content: bytes) -> str:
    """An npm archive in the cache; its sha256."""
    path = cache / "harness" / "archives" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as files:
        entry = tarfile.TarInfo("package/bin/tool")
        entry.size = len(content)
        files.addfile(entry, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bundle(sha256: str, member: str = "package/bin/tool") -> Bundle:
    return Bundle("Tool", (Piece("@who/tool", "1.0.0", sha256, member, "tool"),))


@pytest.fixture(autouse=True)
def no_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def test_an_archive_that_lies_there_needs_no_npm(tmp_path: Path) -> None:
    made = ensure(bundle(archive(tmp_path, "who-tool-1.0.0.tgz", b"run me")), tmp_path, print).folder
    assert (made / "tool").read_bytes() == b"run me"
    assert (made / "tool").stat().st_mode & 0o777 == 0o755


def test_without_archive_and_npm_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"install npm, or lay the package's archive at .*who-tool-1.0.0.tgz"):
        ensure(bundle("0" * 64), tmp_path, print)


def test_another_archive_is_refused_and_not_kept(tmp_path: Path) -> None:
    archive(tmp_path, "who-tool-1.0.0.tgz", b"something else")
    with pytest.raises(UserError, match=r"is not @who/tool 1.0.0: its sha256 is \w+, pinned is 0+"):
        ensure(bundle("0" * 64), tmp_path, print)
    assert not list((tmp_path / "harness" / "archives").iterdir())


def test_one_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    wanted = bundle(archive(tmp_path, "who-tool-1.0.0.tgz", b"run me"))
    folder = tmp_path / "harness" / wanted.digest
    folder.mkdir(parents=True)
    (folder / "tool").write_bytes(b"ru")
    assert (ensure(wanted, tmp_path, print).folder / "tool").read_bytes() == b"run me"
    assert (folder / STAMP).exists()


def test_two_that_want_it_at_once_make_it_once(tmp_path: Path) -> None:
    wanted, said = bundle(archive(tmp_path, "who-tool-1.0.0.tgz", b"run me" * 100_000)), list[str]()
    threads = [threading.Thread(target=ensure, args=(wanted, tmp_path, said.append)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    inode = (tmp_path / "harness" / wanted.digest / "tool").stat().st_ino
    ensure(wanted, tmp_path, said.append)
    assert (tmp_path / "harness" / wanted.digest / "tool").stat().st_ino == inode
    assert said.count("making the files of Tool for sandboxes (once)") == 1
    assert said.count("the files of Tool for sandboxes: another process is making it; waiting for that") == 3
