"""What a rollout costs in the collector: CPU time and memory, with a dispatcher that answers at once.

Run as `python benchmarks/perf/collector.py [rollouts] [bytes per result]`; prints one JSON line.
`rss_growth_mb` is the peak of this process over its size before the first row; compare two sizes for the slope.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import orjson
import psutil

from gym.config.plan import Route
from gym.rollouts.collect import collect
from gym.rollouts.options import CollectOptions
from gym.rollouts.targets import Targets


class FakeDispatcher:
    """Answers every episode with a reward and a transcript of a given size; nothing runs."""

    def __init__(self, size: int) -> None:
        self._response = {"id": "r", "output": [{"type": "message", "content": "x" * 100} for _ in range(size // 130)]}

    async def run(self, environment: str, body: bytes) -> tuple[int, bytes]:
        """One answer, after giving way once as a real call does."""
        await asyncio.sleep(0)
        request = orjson.loads(body)
        result = {"responses_create_params": {"input": "q"}, "response": self._response, "reward": 1.0, "mask_sample": False}
        return 200, orjson.dumps({"episode_id": request["episode_id"], "task_id": request["task"]["task_id"], "result": result})


def main() -> None:
    """Measure and print."""
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
    dispatcher = FakeDispatcher(size)
    targets = Targets(routes={}, environments={"env": Route("env", resources="bench")})
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        with source.open("w") as rows:
            for index in range(rollouts):
                row = {"instance_id": f"task-{index}", "responses_create_params": {"input": "q" * 500}, "answer": index}
                rows.write(json.dumps(row) + "\n")
        before = psutil.Process().memory_info().rss
        wall, cpu = time.perf_counter(), time.process_time()
        options = CollectOptions(input=source, output=Path(folder) / "out.jsonl")
        summary = asyncio.run(collect(options, targets, dispatcher, run_id="bench", config_keys={}))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    answer_cost = _own_cost(dispatcher, 2000)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(
        json.dumps(
            {
                "rollouts": rollouts,
                "result_bytes": size,
                "measured": summary.coverage.measured,
                "cpu_ms_per_rollout": round(cpu / rollouts * 1000, 4),
                "of_which_fake_dispatcher_ms": round(answer_cost, 4),
                "wall_seconds": round(wall, 2),
                "rss_growth_mb": round(growth / 1e6, 2),
            }
        )
    )


def _own_cost(dispatcher: FakeDispatcher, number: int) -> float:
    """CPU milliseconds that the fake dispatcher itself takes for one answer."""
    body = b'{"episode_id":{"rollout_id":"0-0","attempt":0},"task":{"task_id":{"taskset":"t","task_id":"0"},"task_input":{}}}'

    async def answer() -> None:
        for _ in range(number):
            await dispatcher.run("env", body)

    start = time.process_time()
    asyncio.run(answer())
    return (time.process_time() - start) / number * 1000


if __name__ == "__main__":
    main()
