"""What resuming costs: a collection is killed half-way and begun again, with a dispatcher that answers at once.

Run as `python benchmarks/perf/resume.py [rollouts]`; prints one JSON line: seconds from the start of the second process's
collector to its first dispatch, and the peak memory of each process.
"""

import asyncio
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from gym.config.plan import Route
from gym.rollouts.collect import collect
from gym.rollouts.options import CollectOptions
from gym.rollouts.targets import Targets


class Dispatcher:
    """Answers at once. Dies after so many answers, or notes when it was first asked."""

    def __init__(self, die_after: int) -> None:
        self._left, self.first, self.first_cpu = die_after, 0.0, 0.0

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """One answer, after giving way once as a real call does."""
        if not self.first:
            self.first, self.first_cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(0)
        self._left -= 1
        if not self._left:
            print(json.dumps({"peak_mb": _peak()}), flush=True)
            signal.raise_signal(signal.SIGKILL)
        request = orjson.loads(body)
        result = {"responses_create_params": {"input": "q"}, "response": {"id": "r", "output": ["x" * 200]}, "reward": 1.0}
        return 200, orjson.dumps({"episode_id": request["episode_id"], "task_id": request["task"]["task_id"], "result": result})


def _peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def _collect(folder: Path, die_after: int) -> None:
    dispatcher: Any = Dispatcher(die_after)
    options = CollectOptions(input=folder / "rows.jsonl", output=folder / "out.jsonl", resume=True)
    start, cpu = time.perf_counter(), time.process_time()
    summary = asyncio.run(
        collect(options, Targets({}, {"env": Route("env", resources="bench")}), dispatcher, run_id="bench", config_keys={})
    )
    found = {"measured": summary.coverage.measured, "attempts": summary.coverage.attempts, "peak_mb": _peak()}
    to_first = {"first_dispatch_seconds": round(dispatcher.first - start, 2), "of_which_cpu": round(dispatcher.first_cpu - cpu, 2)}
    print(json.dumps({**to_first, **found}))


def main() -> None:
    """Measure and print."""
    if len(sys.argv) > 2:
        _collect(Path(sys.argv[2]), int(sys.argv[1]))
        return
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "rows.jsonl").open("w") as rows:
            for index in range(rollouts):
                rows.write(json.dumps({"instance_id": f"task-{index}", "responses_create_params": {"input": "q" * 200}}) + "\n")
        ran: list[dict[str, Any]] = []
        for die_after in (rollouts // 2, -1):
            process = subprocess.run([sys.executable, __file__, str(die_after), folder], stdout=subprocess.PIPE, check=False)
            ran.append(json.loads(process.stdout))
    print(json.dumps({"rollouts": rollouts, "killed": ran[0], "resumed": ran[1]}))


if __name__ == "__main__":
    main()
