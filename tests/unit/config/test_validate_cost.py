"""What a check of a configuration costs and does: little time, no server's app, no socket, no other process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CPU_SECONDS = 0.6
CONFIGS = {
    "an example": "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "a recipe": "benchmarks/swebench/verified/opencode.yaml",
    "a recipe with a worker": "benchmarks/swebench/pro/nooa.yaml",
}
# An audit hook cannot be taken off again, and sees what C code does as well.
PROGRAM = """
import sys
touched = []
def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.fork", "urllib.")):
        touched.append(event)
sys.addaudithook(watch)
from gym.cli.main import run
code = run(sys.argv[1:])
apps = [name for name in sys.modules if name.rpartition(".")[2] == "app"]
print(code, *touched, *apps, file=sys.stderr)
"""


def arguments(config: str) -> list[str]:
    return ["env", "validate", "--config", config, "--model-type", "scripted_model"]


@pytest.mark.parametrize("what", [*(arguments(config) for config in CONFIGS.values()), ["env", "validate", "--all"]], ids=[*CONFIGS, "all"])
def test_it_starts_nothing_and_asks_nobody(what: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *what], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.splitlines()[-1] == "0", done.stderr


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_it_costs_little_more_than_the_start_of_python(config: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gym.cli.main import main; main()", *arguments(config)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent: list[float] = []
    for _ in range(4):  # the first may have to compile our modules, and others may disturb one
        before = os.times()
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=True)
        after = os.times()
        spent.append(after.children_user - before.children_user + after.children_system - before.children_system)
    assert min(spent[1:]) < CPU_SECONDS, spent
