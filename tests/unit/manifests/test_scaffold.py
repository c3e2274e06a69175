"""`gym env init` makes whole things, and `gym env test` runs what they say of themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gym.cli import main as cli
from gym.manifests import scaffold as module
from gym.manifests.check import check_all
from gym.manifests.scaffold import SCAFFOLDS

GYM = Path(sys.executable).parent / "gym"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that holds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_EXTRA_ROOTS", raising=False)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCAFFOLDS)
def test_what_is_made_holds_and_its_tests_pass(kind: str, folder: Path) -> None:
    made = subprocess.run([GYM, "env", "init", "a_try", "--kind", kind, "--author", "A: b"], capture_output=True, text=True, check=True)
    assert made.stderr == "next: gym env test a_try\n"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(made.stdout.splitlines())
    for path in folder.rglob("*"):
        assert "@" not in path.name
        assert path.is_dir() or "@name@" not in path.read_text()
    checked, problems, _ = check_all([folder], folder)
    assert [str(problem) for one in checked for problem in (*one.problems, *one.stale)] == []
    assert problems == []
    assert [one.manifest.authors for one in checked if one.manifest is not None] == [["A: b"]]
    done = subprocess.run([GYM, "env", "test", "a_try", "--pytest", "-q"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "0 errors" in done.stderr


def test_the_tests_of_what_is_made_can_fail(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "init", "a_try", "--author", "me"]) == 0
    server = folder / "resources_servers/a_try"
    (server / "tests/test_a_try.py").write_text("def test_it() -> None:\n    assert False\n")
    assert cli.run(["env", "test", "a_try"]) == 1
    assert "1 failed" in capfd.readouterr().out
    assert cli.run(["env", "test", "a_try", "--no-tests"]) == 0
    (server / "tests/test_a_try.py").unlink()
    assert cli.run(["env", "test", "a_try/a_try"]) == 1
    assert "there are no tests in" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("data/example.jsonl", '{"word": ""}\n', "example.jsonl:1:1: error[row]: the task data does not fit the server's schema: word:"),
        ("data/example.jsonl", "{}\n[]\n", "example.jsonl:2:1: error[row]: the row is a list, not an object"),
        ("task_data.py", "nonsense(\n", "task_data.py cannot be imported: SyntaxError"),
        ("configs/a_try/manifest.yaml", "name: a_try\n", "manifest.yaml:1:1: error[missing-key]: version: is required"),
        ("configs/a_try.yaml", "a: [", "a_try.yaml:2:"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_told_before_any_test_runs(
    path: str, text: str, said: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["env", "init", "a_try"]) == 0
    (folder / "resources_servers/a_try" / path).write_text(text)
    capfd.readouterr()
    assert cli.run(["env", "test", "a_try"]) == 1
    out, err = capfd.readouterr()
    assert said in err
    assert out == ""


def test_what_exists_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "resources_servers/a_try").mkdir(parents=True)
    assert cli.run(["env", "init", "a_try", "--kind", "benchmark"]) == 1
    assert capsys.readouterr().err == f"{folder / 'resources_servers/a_try'} exists: choose another name\n"
    assert [path.name for path in folder.rglob("*")] == ["resources_servers", "a_try"]
    assert cli.run(["env", "init", "swebench"]) == 1  # a shipped one
    assert "resources_servers/swebench exists: choose another name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "A", "a-b", "a__b", "_a", "1a", "../a", "a/b", "a.b"])
def test_names_that_are_refused(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "init", name]) == 1
    assert "cannot be the name of a folder of servers" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = Path.rename

    def full(path: Path, target: Path) -> Path:
        if "resources_servers" in str(target):
            raise OSError(28, "No space left on device")
        return renamed(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        module.scaffold("a_try", "benchmark", folder, "me")
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "init", "a_try", "--kind", "agent", "--into", "there/below"]) == 0
    assert (folder / "there/below/responses_api_agents/a_try/app.py").is_file()
    monkeypatch.setenv("GYM_EXTRA_ROOTS", os.fspath(folder / "there/below"))
    assert cli.run(["env", "test", "a_try", "--no-tests"]) == 0
    assert "5 rows checked, 0 errors" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing_like_it", ".", "..", "", "configs/.."])
def test_testing_what_is_not_there(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "test", name]) == 1
    assert f"there is nothing called {name!r} to test" in capsys.readouterr().err
