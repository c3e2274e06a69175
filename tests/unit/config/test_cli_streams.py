"""Standard streams that are closed or full, and a working directory that is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = "--config resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml --model-type scripted_model"


def _sh(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "GYM_STATE_DIR": str(folder / "state")}
    code = "import sys; from gym.cli.main import main; sys.argv[0] = 'gym'; main()"
    script = f'gym() {{ "{sys.executable}" -c "{code}" "$@"; }}\n{command}'
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, text=True, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing(tmp_path: Path, closed: str) -> None:
    done = _sh(f"gym eval run {EXAMPLE} --limit 1 --output out.jsonl {closed}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1


def test_a_full_disk_under_stdout_is_one_line(tmp_path: Path) -> None:
    done = _sh(f"gym env resolve {EXAMPLE} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = _sh(f"gym env resolve {EXAMPLE} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    done = _sh(f"mkdir gone; cd gone; rmdir ../gone; gym env validate {EXAMPLE}", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("the working directory cannot be used")
    assert len(done.stderr.splitlines()) == 1
