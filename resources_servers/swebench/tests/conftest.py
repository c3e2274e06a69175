"""The profile, asked in the server's own environment, where the `swebench` package is."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gym.config import load
from gym.config.errors import UserError
from gym.runtime.environments import environment_python

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Calls the profile; raises ValueError with what it said."""
    plan = load([REPOSITORY / "resources_servers/swebench/configs/swebench.yaml"], []).plan
    try:
        python = environment_python(plan.instances["swebench_resources_server"], plan.settings, lambda line: None)
    except UserError as error:
        pytest.skip(f"the server's own environment cannot be built here: {error}")
    command = [python, str(HERE / "profile_probe.py")]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def call(name: str, **arguments: Any) -> Any:
            stdin.write(json.dumps({"call": name, **arguments}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer["value"]

        yield call
        stdin.close()
