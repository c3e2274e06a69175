"""A collection in a folder of its own, with a dispatcher that answers from a script."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

import orjson
import pytest

from gym.config.plan import Route
from gym.rollouts import collect as collect_module
from gym.rollouts import dispatch as dispatch_module
from gym.rollouts.collect import Launch, Summary, collect
from gym.rollouts.files import OutputFiles
from gym.rollouts.flights import Stages
from gym.rollouts.options import CollectOptions
from gym.rollouts.targets import Targets

TARGETS = Targets(
    routes={"bench:all": Route("env", resources="bench", agent="agent")},
    environments={"env": Route("env", resources="bench", agent="agent")},
)


class FakeDispatcher:
    """Answers each episode with what `script(rollout id, attempt, request)` returns: a part of a reply, or an exception to raise."""

    def __init__(self, script: Callable[[str, int, dict[str, Any]], Any]) -> None:
        self._script = script
        self.calls: list[tuple[str, int]] = []
        self.out = self.most_out = 0
        self.told: Stages | None = None

    async def traffic(self) -> None:
        """No model server tells anything."""

    async def stages(self, environments: Iterable[str]) -> Stages | None:
        """What is set, if anything is."""
        return self.told

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """See `gym.rollouts.dispatch.Dispatcher`."""
        request = orjson.loads(body)
        episode = request["episode_id"]
        self.calls.append((episode["rollout_id"], episode["attempt"]))
        self.out += 1
        self.most_out = max(self.out, self.most_out)
        try:
            answer = self._script(episode["rollout_id"], episode["attempt"], request)
            if isinstance(answer, Awaitable):
                answer = await answer
            else:
                await asyncio.sleep(0)
        finally:
            self.out -= 1
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, tuple):
            return answer
        return 200, orjson.dumps({"episode_id": episode, "task_id": request["task"]["task_id"], **answer})


class Bench:
    """Everything of one collection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = folder / "rows.jsonl"
        self.config_keys = {"policy_model.model": "1", "policy_model.temperature": "2"}
        self.files = OutputFiles(folder / "out.jsonl")
        self.dispatcher = FakeDispatcher(lambda *_: self.result())

    @staticmethod
    def result(reward: float | None = 1.0, **fields: Any) -> dict[str, Any]:
        """A reply with a result."""
        row = {"responses_create_params": {"input": "q"}, "response": {"id": "r", "output": []}, "mask_sample": False, **fields}
        return {"result": row if reward is None else {**row, "reward": reward}}

    @classmethod
    def masked(cls) -> dict[str, Any]:
        """A reply with a result that could not be measured."""
        return cls.result(None, mask_sample=True, failure_reason="no verdict")

    @staticmethod
    def output_of(lines: Iterable[bytes]) -> list[dict[str, Any]]:
        """Rows from their lines."""
        return [orjson.loads(line) for line in lines]

    @staticmethod
    def failure(kind: str | None = "agent_run_error", *, terminal: bool = False, **fields: Any) -> dict[str, Any]:
        """A reply with a failure."""
        return {"failure": {"failure_reason": "it broke", "terminal": terminal, "failure_kind": kind} | fields}

    def rows(self, rows: int | Iterable[dict[str, Any] | bytes]) -> None:
        """Write the input: so many good rows, or these."""
        if isinstance(rows, int):
            rows = [{"instance_id": f"t{index}", "responses_create_params": {"input": "q"}} for index in range(rows)]
        self.input.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))

    def script(self, script: Callable[[str, int, dict[str, Any]], Any]) -> FakeDispatcher:
        """Answer from a function."""
        self.dispatcher = FakeDispatcher(script)
        return self.dispatcher

    async def collect(
        self,
        targets: Targets = TARGETS,
        on_launch: Callable[[Launch], None] | None = None,
        progress: TextIO | None = None,
        **options: Any,
    ) -> Summary:
        """Run it, and check what must hold of every run."""
        asked = CollectOptions(input=self.input, output=self.files.output, **options)
        told = {"on_launch": on_launch, "progress": progress}
        summary = await collect(asked, targets, self.dispatcher, run_id="run", config_keys=self.config_keys, **told)
        self.check(summary)
        return summary

    def check(self, summary: Summary) -> None:
        """The account agrees with the files, whatever happened."""
        coverage = summary.coverage
        written = Counter(row["_ng_rollout_id"] for row in self.output)
        failed = {row["_ng_rollout_id"] for row in self.failures}
        assert coverage.expected == coverage.measured + coverage.masked + coverage.unscored + coverage.failed + coverage.owed
        assert not written or max(written.values()) == 1
        assert len(written) == coverage.measured + coverage.masked + coverage.unscored
        assert coverage.failed <= len(failed)
        on_file = orjson.loads(self.files.coverage.read_bytes())
        assert on_file["reconciled"] is True
        assert {key: on_file[key] for key in ("expected", "measured", "owed")} == {
            "expected": coverage.expected,
            "measured": coverage.measured,
            "owed": coverage.owed,
        }
        assert not self.files.attempts.exists()
        assert not [path for path in self.folder.iterdir() if path.name.startswith(".")]

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The lines of a file, each whole."""
        content = path.read_bytes() if path.exists() else b""
        assert not content or content.endswith(b"\n")
        return [orjson.loads(line) for line in content.splitlines()]

    @property
    def output(self) -> list[dict[str, Any]]:
        """The rows of the output."""
        return self.read(self.files.output)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The rows of the failures file."""
        return self.read(self.files.failures)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return orjson.loads(self.files.manifest.read_bytes())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A collection whose back-off is short."""
    monkeypatch.setattr(collect_module, "backoff", lambda tries: tries * 0.001)
    monkeypatch.setattr(dispatch_module, "ADMISSION_WAIT_CAP", 0.01)
    return Bench(tmp_path)
