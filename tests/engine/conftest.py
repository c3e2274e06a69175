"""A real vLLM engine for tests: set up once, started on a free port, and started anew if a test has killed it.

Where it comes from: a folder with `setup.sh DIR` and `serve.sh DIR PORT` at $GYM_SHARED/tools/vllm_cpu (default: ../shared beside
this repository). It is installed below $GYM_TEST_VLLM, by default in the user's cache folder, which takes a few minutes the first time.
Without it these tests are skipped, and say so.
"""

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPOSITORY, GymRuns, runs, wait_for

__all__ = ["runs"]

_SHARED = Path(os.environ.get("GYM_SHARED", REPOSITORY.parent / "shared"))
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gym-tests" / "vllm"


def post(url: str, body: dict[str, Any], *, timeout: float = 30, **headers: str) -> dict[str, Any]:
    """POST JSON, and return the JSON that comes back."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


class Engine:
    """The engine: `url` ends in /v1."""

    def __init__(self, tools: Path, home: Path, log: Path) -> None:
        self._tools, self._home, self._log = tools, home, log
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def ensure(self) -> "Engine":
        """Start it, unless it runs."""
        if self._process is None or self._process.poll() is not None:
            template = Path(__file__).with_name("chat.jinja")
            command = ["bash", self._tools / "serve.sh", self._home, str(self.port), "--chat-template", template]
            env = {**os.environ, "MAX_MODEL_LEN": "4096", "VLLM_CPU_KVCACHE_SPACE": "1"}
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
            wait_for(self._answers, lambda: f"the engine answers; {self._log.read_text(errors='replace')[-2000:]}", 240)
        return self

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to a route of the engine's own."""
        request = urllib.request.Request(
            self.url.removesuffix("/v1") + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def kill(self) -> None:
        """kill -9, with all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the engine ended: {self._log.read_text(errors='replace')[-2000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The one engine of the session."""
    tools = _SHARED / "tools" / "vllm_cpu"
    if not (tools / "setup.sh").exists():
        pytest.skip(f"there is no vLLM to test with: {tools} does not exist (set GYM_SHARED)")
    home = Path(os.environ.get("GYM_TEST_VLLM", _CACHE))
    home.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["bash", tools / "setup.sh", home], capture_output=True, text=True, timeout=1200)
    if made.returncode:
        pytest.skip(f"vLLM cannot be set up here: {made.stderr.strip()[-500:]}")
    engine = Engine(tools, home, tmp_path_factory.mktemp("vllm") / "log.txt")
    try:
        yield engine
    finally:
        engine.kill()


@pytest.fixture
def engine(vllm: Engine) -> Engine:
    """The engine, up."""
    return vllm.ensure()


@pytest.fixture
def server(runs: GymRuns, engine: Engine) -> Iterator["ModelServer"]:
    """A `vllm_model` before the engine, alone."""
    started = runs.begin("env", "start", "--json", "--model-type", "vllm_model", *policy(engine))
    yield ModelServer(started.ready())
    started.signal()
    started.ended()


class ModelServer:
    """A running `vllm_model` instance as its clients and its environment server see it."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.url: str = ready["instances"]["policy_model"]["url"]
        self.token = Path(ready["token_file"]).read_text().strip()

    def base(self, rollout: str) -> str:
        """The base URL of a rollout whose token ids are captured, for a client of any dialect."""
        return f"{self.url}/ng-rollout/{rollout}/training-token-capture/v1"

    def close(self, rollout: str, response: dict[str, Any] | None) -> dict[str, Any]:
        """Close the record of a rollout, as an environment server does; its report."""
        return post(f"{self.base(rollout)}/capture/close", {"response": response}, authorization=f"Bearer {self.token}")


def policy(engine: Engine) -> list[str]:
    """Overrides that put a `vllm_model` before the engine; a line's end stops it, since this small model never stops by itself."""
    given = [f"+policy_base_url={engine.url}", "+policy_api_key=EMPTY", "+policy_model_name=tiny"]
    return [*given, "+policy_model.responses_api_models.vllm_model.extra_body={stop_token_ids: [107]}"]
