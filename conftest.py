"""What all tests share: a Docker engine with the images that tests need, or a clear reason why not."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent
BASE_IMAGE = "gym-base:bookworm"
EXAMPLES = REPOSITORY / "resources_servers" / "swebench" / "data" / "example.jsonl"


def pytest_configure() -> None:
    """Let what tests start be hung up: what was started by `nohup` would have its children mind no SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, so that a plain mistake is seen early."""
    items.sort(key=lambda item: (item.get_closest_marker("docker") is not None) + (item.get_closest_marker("slow") is not None))


def unavailable(reason: str) -> None:
    """Skip, or fail where GYM_TEST_STRICT=1 says that everything must be there."""
    if os.environ.get("GYM_TEST_STRICT") == "1":
        pytest.fail(f"GYM_TEST_STRICT=1, and {reason}", pytrace=False)
    pytest.skip(reason)


def _docker(*args: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *args], text=True, capture_output=True, check=False, timeout=timeout)


def _why_no_engine() -> str | None:
    try:
        asked = _docker("version", "--format", "{{.Server.Version}}", timeout=20)
    except FileNotFoundError:
        return "there is no docker command (scripts/docker_engine.sh installs one)"
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    return None if asked.returncode == 0 else "no Docker engine answers (scripts/docker_engine.sh starts one)"


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A Docker engine that answers and has `gym-base` and the images of the example tasks, which are built if they are missing."""
    if reason := _why_no_engine():
        unavailable(reason)
    shared = tmp_path_factory.getbasetemp()
    lock_folder = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with (lock_folder / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker builds, the others wait
        for script in (["bash", "scripts/build_base_image.sh"], [sys.executable, "scripts/build_task_images.py"]):
            built = subprocess.run(script, cwd=REPOSITORY, text=True, capture_output=True, check=False, timeout=280)
            if built.returncode:
                unavailable(f"an image for tests could not be built: {built.stderr.strip()[-500:]}")


@pytest.fixture(scope="session")
def need_bubblewrap() -> None:
    """Bubblewrap, on a machine that lets it make namespaces."""
    try:
        argv = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
        tried = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=20)
    except FileNotFoundError:
        unavailable("there is no bwrap command (scripts/bubblewrap.sh installs it)")
    else:
        if tried.returncode:
            unavailable(f"bubblewrap cannot make namespaces here: {tried.stderr.strip()[-200:]}")


@pytest.fixture
def docker_run_id(docker_engine: None) -> Iterator[str]:
    """A fresh run id; after the test no container that carries it may be left."""
    run_id = f"test-{uuid.uuid4().hex}"
    yield run_id
    wanted = ["ps", "-aq", "--filter", f"label=nemo-gym.run-id={run_id}"]
    left = _docker(*wanted).stdout.split()
    if left:
        _docker("rm", "-f", *left)
    assert not left, f"{len(left)} containers of the test are left over"


@pytest.fixture
def calc_row() -> dict[str, str]:
    """The row of the small test task, without what an agent is told; its image comes with `docker_engine`."""
    with EXAMPLES.open() as lines:
        row = json.loads(next(lines))
    del row["responses_create_params"]
    return row
