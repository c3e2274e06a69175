"""Published rows of R2E-Gym become rows with an id and a patch that git applies."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from resources_servers.r2e_gym.prepare_r2e_gym import convert

FILES = {
    "a/plain.py": ("one\ntwo\nthree\n", "one\n2\nthree\n"),
    "no_newline.py": ("x", "y"),
    "gains_newline.py": ("x", "x\n"),
    "feed.py": ("a\x0cb\r\nc\n", "a\x0cb\r\nd\n"),
    "deep er/new.py": ("", "fresh\n"),
    "gone.py": ("old\n", ""),
    "same.py": ("s\n", "s\n"),
    "tests/test_plain.py": ("", "def test(): pass\n"),
    "a/test_more.py": ("", "def test(): pass\n"),
}


def published(**changes: Any) -> dict[str, Any]:
    files = [
        {"header": {"file": {"path": path}}, "old_file_content": old, "new_file_content": new, "is_binary_file": False}
        for path, (old, new) in FILES.items()
    ]
    files.append({"header": {"file": {"path": "b.bin"}}, "old_file_content": "", "new_file_content": "", "is_binary_file": True})
    commit = json.dumps({"file_diffs": files, "commit_message": "fix"})
    return {"repo_name": "orange3", "commit_hash": "abc", "docker_image": "i", "parsed_commit_content": commit, **changes}


def test_the_patch_turns_the_old_files_into_the_new_ones(tmp_path: Path) -> None:
    row = convert(published())
    assert row["instance_id"] == "orange3__abc"
    assert "parsed_commit_content" not in row
    for path, (old, _) in FILES.items():
        if old:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(old.encode())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=tmp_path, check=True, input=row["patch"].encode())
    for path, (_, new) in FILES.items():
        expected = None if "test" in path or not new else new.encode()
        assert ((tmp_path / path).read_bytes() if (tmp_path / path).exists() else None) == expected, path


def test_a_patch_of_its_own_is_kept() -> None:
    assert convert(published(patch="p", parsed_commit_content=None))["patch"] == "p"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"commit_hash": None}, "commit_hash and repo_name"),
        ({"parsed_commit_content": None}, "parsed_commit_content is not a commit"),
        ({"parsed_commit_content": "{"}, "parsed_commit_content is not a commit"),
        ({"parsed_commit_content": '{"file_diffs": [{}]}'}, "KeyError"),
    ],
)
def test_what_is_no_row(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        convert(published(**changes))
