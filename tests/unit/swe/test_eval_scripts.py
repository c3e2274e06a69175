"""The pieces of test scripts, run by a real bash and git."""

import subprocess
from pathlib import Path

import pytest

from gym.swe.eval_scripts import apply_test_patch, files_after, marked, words, write_file
from gym.swe.rows import required_tests

PATCH = """diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1 @@
-old
+new
diff --git a/tests/added it's.py b/tests/added it's.py
new file mode 100644
--- /dev/null
+++ b/tests/added it's.py
@@ -0,0 +1 @@
+>>>>> Start Test Output
diff --git a/tests/gone.py b/tests/gone.py
deleted file mode 100644
--- a/tests/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    for name, text in (("test_a.py", "old\n"), ("gone.py", "gone\n")):
        (tmp_path / "tests" / name).write_text(text)
    git = "git init -q . && git add -A && git -c user.name=x -c user.email=x@x commit -qm base"
    subprocess.run(git, shell=True, cwd=tmp_path, check=True)
    return tmp_path


def bash(script: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, check=False, timeout=20)


def test_the_files_of_a_test_patch() -> None:
    assert files_after(PATCH) == ["tests/test_a.py", "tests/added it's.py"]
    assert files_after("") == []


@pytest.mark.parametrize(
    "ruin",
    [
        ":",
        "echo mine > tests/test_a.py; echo mine > \"tests/added it's.py\"; rm tests/gone.py",
        "rm tests/test_a.py; mkdir tests/test_a.py; ln -s /etc/passwd \"tests/added it's.py\"",
        "rm -r tests",
    ],
)
def test_the_test_patch_applies_whatever_became_of_its_files(repository: Path, ruin: str) -> None:
    done = bash(f"{ruin}\n{apply_test_patch('HEAD', PATCH.rstrip())}\necho went on", repository)
    assert (done.returncode, done.stdout) == (0, b"went on\n"), done.stderr
    assert {path.name: path.read_text() for path in (repository / "tests").iterdir()} == {
        "test_a.py": "new\n",
        "added it's.py": ">>>>> Start Test Output\n",
    }
    assert ">>>>> Start" not in apply_test_patch("HEAD", PATCH), "a patch cannot hold a marker of the script"


@pytest.mark.parametrize("patch", [PATCH.replace("-old", "-older"), PATCH.replace("+++ b/tests/test_a.py\n", "+++ b/tests/test_a.py\n@@ @@\n")])
def test_a_test_patch_that_does_not_fit_ends_the_script_with_gits_words(repository: Path, patch: str) -> None:
    done = bash(f"{apply_test_patch('HEAD', patch)}\necho went on", repository)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"error: " in done.stderr


def test_no_test_patch_is_no_command(repository: Path) -> None:
    assert bash(apply_test_patch("HEAD", " \n"), repository).returncode == 0


@pytest.mark.parametrize("content", ["", "no end", "GYM_FILE\n$HOME `id` \\ '\"\n\ttab\r\n", "\udcff\x01é\n"])
def test_files_are_written_byte_for_byte(tmp_path: Path, content: str) -> None:
    name = "it's a.py"
    assert bash(write_file(name, content), tmp_path).returncode == 0
    assert (tmp_path / name).read_bytes() == content.encode(errors="surrogateescape")


def test_the_script_ends_with_the_code_of_the_tests(tmp_path: Path) -> None:
    done = bash(marked("echo one\n(exit 3)"), tmp_path)
    assert (done.returncode, done.stdout.decode().splitlines()) == (3, [">>>>> Start Test Output", "one", ">>>>> End Test Output"])


def test_words_are_quoted() -> None:
    assert words(["a.py", "b c", "$(id)"]) == "a.py 'b c' '$(id)'"


def test_required_tests_are_named_once_and_must_be_some() -> None:
    assert required_tests({"A": '["x", "y"]', "B": "['y', 'z']"}, "A", "B") == ("x", "y", "z")
    with pytest.raises(ValueError, match="A and B name no test"):
        required_tests({"A": "[]", "B": []}, "A", "B")
