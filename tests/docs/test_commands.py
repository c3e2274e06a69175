"""Every shell command of the README, of docs/ and of the first benchmark is run as it stands, or stands here with the reason why not."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.conftest import REPOSITORY, Reader
from tests.docs.endpoint import endpoint

if TYPE_CHECKING:
    from _pytest.fixtures import FixtureRequest

NOT_RUN = {
    "scripts/test.sh": "is what runs this test",
    "pip install .": "another environment for each run of the tests; the wheel's own test installs it",
    "python benchmarks/swebench/verified/prepare.py": "reads the hub; tests/unit/swe runs it with rows from a file",
    "python benchmarks/gsm8k/prepare.py": "reads the hub; tests/unit/tasks runs it with rows from a file",
    "python scripts/check_exports.py": "wants environments with TRL and verl, which do not install beside ours",
    "docker ps -aq": "removes the sandboxes of the tests that run beside it",
}
"""Commands by how they begin."""

FOLLOWED_ELSEWHERE = {"docs/write-an-agent.md", "docs/write-a-swe-data-set.md", "docs/write-an-environment.md"}
"""Pages with a test of their own, in the file of the same name."""

EXAMPLE = REPOSITORY / "resources_servers/swebench/data/example.jsonl"
GSM8K, GSM8K_EXAMPLE = "benchmarks/gsm8k/data/gsm8k_benchmark.jsonl", REPOSITORY / "benchmarks/gsm8k/data/example.jsonl"
WEATHER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"

ASKED = """gym env status --json | python -c 'import json, sys; print(json.load(sys.stdin)["{}"])'"""


@dataclass(frozen=True)
class Setting:
    """What a page takes for granted."""

    before: str = ""
    """Shell commands that came before, on another page."""
    docker: bool = False
    rows: dict[str, Path] = field(default_factory=dict[str, Path])
    """Data that the reader has, and the shipped example rows that stand for it."""
    instead: dict[str, str] = field(default_factory=dict[str, str])
    """What a reader puts in place of what the page has."""


SETTINGS = {
    "README.md": Setting(
        docker=True,
        rows={"benchmarks/swebench/data/swebench_verified.jsonl": EXAMPLE, GSM8K: GSM8K_EXAMPLE},
        instead={"scripts/demo.sh": f"{REPOSITORY}/scripts/demo.sh $PWD/demo.jsonl"},
    ),
    "benchmarks/gsm8k/README.md": Setting(rows={GSM8K: GSM8K_EXAMPLE}),
    "docs/runtime.md": Setting(
        instead={
            "GYM_HEAD_URL=http://127.0.0.1:8300": f"GYM_HEAD_URL=$({ASKED.format('head_url')})",
            "GYM_TOKEN_FILE=/path/to/token": f"GYM_TOKEN_FILE=$({ASKED.format('token_file')})",
        },
    ),
    "docs/swe.md": Setting(docker=True, rows={"verified.jsonl": EXAMPLE}),
    "docs/training-rows.md": Setting(
        before=f"gym eval run --config {WEATHER} --model-type scripted_model observability_enabled=true --output results/try.jsonl"
    ),
    "docs/troubleshooting.md": Setting(before="mkdir results; touch results/try_failures.jsonl"),
}


def _pages() -> list[str]:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "benchmarks/gsm8k/README.md"]
    names = [str(page.relative_to(REPOSITORY)) for page in pages]
    return [name for name in names if name not in FOLLOWED_ELSEWHERE and Reader(name, Path()).commands]


def _kept(block: str) -> str:
    """A block without the commands that are not run."""
    commands = block.replace("\\\n", " ").splitlines()
    return "\n".join(command for command in commands if not command.startswith(tuple(NOT_RUN)))


class Servers:
    """`gym env start` of a page, in a shell of its own until the end of the page."""

    def __init__(self, follower: Reader, command: str) -> None:
        self._said = follower.folder / "servers.txt"
        with self._said.open("wb") as said:
            self._shell = subprocess.Popen(
                ["bash", "-c", command], cwd=follower.folder, env=follower.env(), stdout=said, stderr=said, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while b"servers are ready" not in self._said.read_bytes():
            assert self._shell.poll() is None, self._said.read_text()
            assert time.monotonic() < deadline, self._said.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Ctrl-C."""
        os.killpg(self._shell.pid, signal.SIGINT)
        self._shell.wait(60)


@pytest.mark.parametrize("page", [pytest.param(name, marks=pytest.mark.slow) for name in _pages()])
def test_every_command_of_a_page_works(page: str, reader: Callable[[str], Reader], request: "FixtureRequest") -> None:
    setting = SETTINGS.get(page, Setting())
    follower = reader(page)
    follower.write_files()
    if setting.docker:
        request.getfixturevalue("docker_engine")
    for name, rows in setting.rows.items():
        target = follower.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(rows, target)
    with ExitStack() as stack:
        policy = {"policy_base_url": stack.enter_context(endpoint()), "policy_api_key": "EMPTY", "policy_model_name": "my-model"}
        (follower.folder / "env.yaml").write_text(json.dumps(policy))
        (follower.folder / "env.yaml").chmod(0o600)
        for block in (setting.before, *map(_kept, follower.commands)):
            command = block
            for there, here in setting.instead.items():
                command = command.replace(there, here)
            if "gym env start" in command:
                stack.callback(Servers(follower, command).stop)
                continue
            done = follower.run(command, seconds=280)
            assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def test_what_is_not_run_stands_on_a_page() -> None:
    """A reason that has lost its command is taken out."""
    lines = [line for page in _pages() for block in Reader(page, Path()).commands for line in block.splitlines()]
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for line in lines), beginning
