"""`gym env prefetch` by whole processes and the real uv, with packages that are made here: no network is needed."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import ROOTS, GymRuns, Started, wait_for
from tests.integration.local_packages import LocalPackages, index_without_files

pytestmark = pytest.mark.slow

NOTHING = "gym: everything is there: nothing to do\n"


class Needy:
    """A server with requirements, and commands that prefetch what it needs."""

    def __init__(self, runs: GymRuns) -> None:
        self.runs = runs
        self.packages = LocalPackages(runs.folder / "packages")
        self.server = runs.folder / "roots" / "resources_servers" / "needy"
        self.server.mkdir(parents=True)
        (self.server / "app.py").touch()
        self.requirements = self.server / "requirements.txt"
        self.cache = runs.folder / "cache"
        self.env = {
            "GYM_EXTRA_ROOTS": f"{ROOTS}:{runs.folder / 'roots'}",
            "GYM_CACHE_DIR": str(self.cache),
            "UV_CACHE_DIR": str(runs.folder / "uv"),
        }
        blocks = (f"{name}: {{resources_servers: {{needy: {{entrypoint: app.py}}}}}}\n" for name in ("one", "two"))
        self.config = runs.write("needy.yaml", "".join(blocks))

    def begin(self, *arguments: str, **env: str) -> Started:
        """Start a prefetch."""
        return self.runs.begin("env", "prefetch", "--config", self.config, *arguments, **{**self.env, **env})

    def run(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        """Prefetch to the end: exit code, stdout, stderr."""
        started = self.begin(*arguments, **env)
        code = started.ended(60)
        return code, started.output, started.errors

    @property
    def made(self) -> list[Path]:
        """The environments that are whole."""
        return [stamp.parent for stamp in self.cache.glob("environments/*/.gym-complete")]


@pytest.fixture
def needy(runs: GymRuns) -> Needy:
    """A server that needs one package, which is there."""
    made = Needy(runs)
    made.packages.wheel("useful", "1.2")
    made.requirements.write_text(made.packages.requirements("# with a reason", "useful>=1"))
    return made


def test_a_second_time_there_is_nothing_to_do(needy: Needy) -> None:
    code, output, errors = needy.run()
    (folder,) = needy.made
    assert (code, output) == (0, f"needy: Python environment {folder}/bin/python\n")
    assert errors == f"gym: building the Python environment of one, two from {needy.requirements} (once, and it may take some minutes)\n"
    said = subprocess.run(
        [f"{folder}/bin/python", "-c", "import useful; print(useful.VERSION)"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "1.2\n"
    before = _state(needy.cache)
    spent = []
    for _ in range(3):
        begun, children = time.monotonic(), os.times()
        assert needy.run("--offline", UV_CACHE_DIR="/proc/none") == (0, output, NOTHING)
        ended = os.times()
        cpu = ended.children_user + ended.children_system - children.children_user - children.children_system
        spent.append((cpu, time.monotonic() - begun))
    assert _state(needy.cache) == before
    cpu, wall = min(spent)
    assert cpu < 0.5, f"{cpu:.2f} s of CPU, {wall:.2f} s in all"


def test_other_requirements_or_another_python_are_another_environment(needy: Needy) -> None:
    assert needy.run()[0] == 0
    with needy.requirements.open("a") as lines:
        lines.write("# only a remark\n\n")
    assert needy.run()[2] == NOTHING
    needy.packages.wheel("more", "1")
    with needy.requirements.open("a") as lines:
        lines.write("more\n")
    assert "building" in needy.run()[2]
    assert len(needy.made) == 2


def test_one_whose_python_is_gone_is_made_anew(needy: Needy) -> None:
    assert needy.run()[0] == 0
    (folder,) = needy.made
    (folder / "bin" / "python").unlink()
    code, _, errors = needy.run()
    assert (code, needy.made, (folder / "bin" / "python").exists()) == (0, [folder], True)
    assert "what is there is not whole, and is made anew" in errors


@pytest.mark.parametrize("group", [False, True], ids=["the process", "its group"])
def test_after_a_kill_nothing_runs_on_and_the_next_one_repairs(needy: Needy, group: bool) -> None:
    slow = needy.runs.folder / "slow"
    needy.packages.slow(slow)
    needy.requirements.write_text(needy.packages.requirements("useful", "slow"))
    started = needy.begin()
    build = int(wait_for(lambda: (slow / "building").exists() and (slow / "building").read_text(), lambda: started.errors))
    uv = [child for child in psutil.Process(started.process.pid).children() if child.name() == "uv"]
    assert len(uv) == 1
    started.signal(signal.SIGKILL, group=group)
    assert started.ended() == 128 + signal.SIGKILL
    wait_for(lambda: not needy.runs.processes(), lambda: f"left: {needy.runs.processes()} of uv {uv} and its build {build}", 5)
    assert needy.made == []
    (slow / "go").touch()
    code, _, errors = needy.run()
    assert (code, len(needy.made)) == (0, 1)
    assert "what is there is not whole, and is made anew" in errors
    assert needy.run()[2] == NOTHING


def _two_at_once(needy: Needy) -> tuple[Path, Started, Started]:
    """One that builds, until `go` is in the folder, and one that waits for it."""
    slow = needy.runs.folder / "slow"
    needy.packages.slow(slow)
    needy.requirements.write_text(needy.packages.requirements("slow"))
    first = needy.begin()
    wait_for((slow / "building").exists, lambda: first.errors)
    second = needy.begin()
    wait_for(lambda: "waiting" in second.errors, lambda: second.errors)
    return slow, first, second


def test_of_two_at_once_one_builds_and_the_other_waits(needy: Needy) -> None:
    slow, first, second = _two_at_once(needy)
    (slow / "go").touch()
    assert (first.ended(60), second.ended(60)) == (0, 0)
    assert first.output == second.output
    assert first.errors.count("building") == 1
    assert second.errors.splitlines() == [
        "gym: the Python environment of one, two: another process is making it; waiting for that",
        "gym: the Python environment of one, two: the other process has made it",
    ]


def test_when_the_one_that_builds_is_killed_the_one_that_waits_takes_over(needy: Needy) -> None:
    slow, first, second = _two_at_once(needy)
    first.signal(signal.SIGKILL)
    (slow / "go").touch()
    assert second.ended(60) == 0
    assert "building" in second.errors
    assert len(needy.made) == 1


def test_offline_every_missing_package_is_named(needy: Needy) -> None:
    needy.packages.wheel("direct", "2.0", "deeper>=3")
    needy.requirements.write_text(f"--find-links {needy.packages.folder}\nuseful\nabsent==1.0\nmissing>=2\ndirect\n")
    code, output, errors = needy.run("--offline")
    assert (code, output, needy.made) == (1, "", [])
    assert missing(needy, errors) == ["absent==1.0", "deeper>=3 (for all versions of direct)", "missing>=2"]


def test_offline_a_wheel_that_was_never_fetched_is_named(needy: Needy) -> None:
    wheel = needy.packages.wheel("unfetched", "3.1", folder=needy.runs.folder)
    with index_without_files(wheel) as url:
        needy.requirements.write_text(f"--index-url {url}\n--find-links {needy.packages.folder}\nunfetched\n")
        code, _, errors = needy.run()
        assert (code, wheel.name in errors) == (1, True)
    code, _, errors = needy.run("--offline")
    assert (code, needy.made) == (1, [])
    assert missing(needy, errors) == [f"unfetched==3.1 ({wheel.name})"]


def missing(needy: Needy, errors: str) -> list[str]:
    """What the one line of a prefetch says that there is not."""
    (line,) = [line for line in errors.splitlines() if not line.startswith("gym: ")]
    where, cache = re.escape(str(needy.requirements)), re.escape(needy.env["UV_CACHE_DIR"])
    found = re.fullmatch(
        rf"error: the Python environment of one, two \({where}\) cannot be made without the network: the cache of uv \({cache}\) "
        r"lacks (.+) — run this once with the network, or bring that cache along",
        line,
    )
    assert found, line
    return sorted(found[1].split(", "))


def test_offline_what_is_there_is_made(needy: Needy) -> None:
    code, output, _ = needy.run("--offline")
    assert (code, len(needy.made)) == (0, 1)
    assert output.startswith("needy: Python environment /")


def test_offline_a_missing_python_is_named(needy: Needy) -> None:
    (needy.server / "python.txt").write_text("3.99\n")
    code, output, errors = needy.run("--offline")
    assert (code, output) == (1, "")
    assert [line.partition(",")[0] for line in errors.splitlines()] == [
        "error: one (needy): a Python 3.99 is needed",
        "error: two (needy): a Python 3.99 is needed",
    ]


def test_of_what_uv_says_the_lines_that_matter_are_shown(needy: Needy) -> None:
    needy.packages.broken()
    needy.requirements.write_text(needy.packages.requirements("broken"))
    code, _, errors = needy.run()
    assert code == 1
    lines = errors.splitlines()
    assert len(lines) <= 8
    assert lines[1] == f"error: the Python environment of one, two ({needy.requirements}) cannot be made; uv says:"
    assert lines[-1] == "    RuntimeError: libfoo.h is not there"
    assert "chatter" not in errors
    needy.requirements.write_text(needy.packages.requirements("useful==7"))
    lines = needy.run()[2].splitlines()
    assert "useful==7" in lines[-1]
    assert len(lines) <= 5


def test_a_cache_folder_that_is_a_file_is_one_line(needy: Needy) -> None:
    needy.cache.touch()
    code, _, errors = needy.run()
    assert code == 1
    assert errors == (
        f"error: the Python environment of one, two cannot be made: {needy.cache}/environments: not a directory — "
        "let it be written, or name another cache folder (cache_dir=DIR, or GYM_CACHE_DIR)\n"
    )


def boxed(needy: Needy, *options: str) -> tuple[int, list[str]]:
    """A prefetch that sees its cache folder otherwise: exit code, and what it says after that it builds."""
    needy.cache.mkdir(exist_ok=True)
    command = ["bwrap", "--dev-bind", "/", "/", *options, shutil.which("gym") or "gym", "env", "prefetch", "--config", str(needy.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**needy.runs.env, **needy.env})
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("gym: building")]


def test_a_cache_folder_that_cannot_be_written_is_one_line(needy: Needy, need_bubblewrap: None) -> None:
    code, (line,) = boxed(needy, "--ro-bind", str(needy.cache), str(needy.cache))
    assert code == 1
    assert line == (
        f"error: the Python environment of one, two cannot be made: {needy.cache}/environments: read-only file system — "
        "let it be written, or name another cache folder (cache_dir=DIR, or GYM_CACHE_DIR)"
    )
    assert needy.run()[0] == 0
    assert boxed(needy, "--ro-bind", str(needy.cache), str(needy.cache)) == (0, [NOTHING.strip()])


@pytest.mark.parametrize("size", ["4096", "65536", "200000"], ids=["at once", "soon", "later"])
def test_a_cache_folder_that_is_full_is_one_line(needy: Needy, need_bubblewrap: None, size: str) -> None:
    code, (line,) = boxed(needy, "--size", size, "--tmpfs", str(needy.cache))
    assert code == 1
    assert re.fullmatch(
        rf"error: the Python environment of one, two cannot be made: {re.escape(str(needy.cache))}\S*: no space left on device — "
        r"free some space there, or name another cache folder \(cache_dir=DIR, or GYM_CACHE_DIR\)",
        line,
    ), line


def _state(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}
