"""A copy of a shipped implementation in the working directory is what runs, in one process and in four."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "resources_servers/example_single_tool_call"


@pytest.mark.parametrize("isolation", ["colocated", "process"])
def test_a_copy_in_the_working_directory_is_what_runs(tmp_path: Path, isolation: str) -> None:
    shutil.copytree(ROOT / NAME, tmp_path / NAME, ignore=shutil.ignore_patterns("__pycache__"))
    app = tmp_path / NAME / "app.py"
    app.write_text(app.read_text().replace("1.0 if called", "0.25 if called"))
    command = [Path(sys.executable).with_name("gym"), "eval", "run", "--config", f"{NAME}/configs/example_single_tool_call.yaml"]
    command += ["--model-type", "scripted_model", "--output", "out.jsonl", "--limit", "1", f"+isolation={isolation}"]
    env = {**os.environ, "GYM_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["reward"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [0.25]
    assert not list((tmp_path / "state").glob("runs/*"))
