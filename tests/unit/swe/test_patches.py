"""Patches are cut and filtered as git itself reads them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym.swe.patches import sections, touched

GIT = ["git", "-c", "core.quotePath=true", "-c", "core.autocrlf=false", "-c", "user.name=t", "-c", "user.email=t@t"]
DIFF = ["diff", "--binary", "--full-index", "--no-color", "--no-renames", "HEAD"]


def git(folder: Path, *args: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run([*GIT, *args], cwd=folder, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    write(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "--allow-empty", "-m", "base")
    return folder


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def diff(folder: Path, *more: str) -> bytes:
    git(folder, "add", "-A", "-N", "-f", ".")
    return git(folder, *DIFF, *more)


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        (b"", set()),
        (b"nothing of a patch\n", set()),
        (b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", {"x.py"}),
        (b"From 1234\n\ndiff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", {"gone"}),
        (b"diff --git a/a b/c.py b/a b/c.py\nold mode 100644\nnew mode 100755\n", {"a b/c.py"}),
        (b"diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n", {"old", "new"}),
        (b'diff --git "a/\\303\\274\\t" "b/\\303\\274\\t"\nnew file mode 100644\n', {"ü\t"}),
        (b"diff --git a/with space b/with space\n--- a/with space\t\n+++ b/with space\t\n@@ -1 +1 @@\n-a\n+b\n", {"with space"}),
        (b"diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n", {"x"}),
        (b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n---- a/y\n+++++ b/z\n diff --git a/q b/q\n", {"x"}),
    ],
)
def test_which_files_a_patch_touches(patch: bytes, paths: set[str]) -> None:
    assert touched(patch) == paths


NAME_LETTERS = st.sampled_from([*"ab. \"\\\t\n\r'é日{}*b/", "\udcff"])
NAMES = st.text(NAME_LETTERS, min_size=1, max_size=8).filter(
    lambda name: not name.startswith("/") and all(part not in ("", ".", "..", ".git") for part in name.split("/"))
)
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"diff --git a/x b/x", b"--- a/x", b"+++ b/y", b"@@ -1 +1 @@", b"plain", b"\xff"]), max_size=5).map(
        b"\n".join
    ),
    st.just(b"a\r\nb\r\n"),
)


def no_clash(names: set[str]) -> bool:
    """No name is a folder of another."""
    return not any(other.startswith(name + "/") for name in names for other in names)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    base=st.dictionaries(NAMES, CONTENT, max_size=4),
    after=st.dictionaries(NAMES, CONTENT, max_size=4),
    gone=st.sets(st.integers(0, 3)),
    kept=st.sets(st.integers(0, 7)),
)
def test_sections_are_what_git_wrote(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, bytes], after: dict[str, bytes], gone: set[int], kept: set[int]
) -> None:
    if not no_clash(set(base) | set(after)):
        return
    folder = repository(tmp_path_factory.mktemp("repo"), base)
    for index, name in enumerate(sorted(base)):
        if index in gone:
            (folder / name).unlink()
    write(folder, after)
    patch = diff(folder)
    named = git(folder, *DIFF, "--name-only", "-z").split(b"\0")[:-1]
    paths = [name.decode(errors="surrogateescape") for name in named]
    assert [path for path, _ in sections(patch)] == paths
    assert b"".join(section for _, section in sections(patch)) == patch
    assert touched(patch) == set(paths)

    # What is left after a filter applies, and brings exactly the files that were kept.
    chosen = {path for index, path in enumerate(paths) if index in kept}
    part = b"".join(section for path, section in sections(patch) if path in chosen)
    fresh = tmp_path_factory.mktemp("fresh")
    subprocess.run(["git", "clone", "-q", str(folder), str(fresh)], check=True, capture_output=True)
    if part:
        git(fresh, "apply", "--whitespace=nowarn", "-", stdin=part)
    for path in paths:
        mine, theirs = fresh / path, folder / path
        if path in chosen:
            assert mine.exists() == theirs.exists()
            assert not mine.exists() or mine.read_bytes() == theirs.read_bytes()
        else:
            assert mine.exists() == (path in base)
            assert not mine.exists() or mine.read_bytes() == base[path]
