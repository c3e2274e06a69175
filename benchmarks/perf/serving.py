"""Measures whole episodes against a model that answers at once: rates, CPU, start, memory, in both modes.

    python benchmarks/perf/serving.py [--rollouts N] [--concurrency N,N] [--json FILE]

The model is the load model of $GYM_SHARED (default: ../shared) in a process of its own; its CPU is not
counted. The environment is the single-tool example: two model calls and one tool call per rollout.
"CPU per rollout" is the growth from a small run to a large one, of every process of ours, so that
starting up is not counted; "whole command" counts it. Nothing here is a test: it asserts nothing about speed.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
GYM = Path(sys.executable).with_name("gym")
CONFIG = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
SWE_CONFIG = "resources_servers/swebench/configs/swebench_oracle.yaml"
SMALL = 200
TICK = os.sysconf("SC_CLK_TCK")


class Tagged:
    """All processes that carry one tag in their environment, so that none that re-parented is missed."""

    def __init__(self) -> None:
        self.tag = uuid.uuid4().hex

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "GYM_BENCH_TAG": self.tag}

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("GYM_BENCH_TAG") == self.tag:
                    found.append(process)
        return found

    def cpu_seconds(self) -> float:
        return sum(sum(p.cpu_times()[:2]) for p in self.processes())

    def pss_mib(self) -> float:
        total = 0
        for process in self.processes():
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1])  # type: ignore[index]
        return total / 1024


def ask(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)


def tell(url: str, path: str, body: dict[str, Any]) -> None:
    """Have the load model do something: `/_reset` zeroes its counters, `/_ctl` sets its latency."""
    data = json.dumps(body).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}{path}", data, {"content-type": "application/json"}), timeout=10).read()


@contextlib.contextmanager
def load_model(shared: Path, folder: Path) -> Iterator[str]:
    """The load model, on a free port."""
    script = shared / "tools" / "load" / "mock_model.py"
    if not script.exists():
        sys.exit(f"the load model is not at {script}: set GYM_SHARED to the folder that holds tools/load")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = (folder / "model.log").open("w")
    process = subprocess.Popen([sys.executable, str(script), "--port", str(port)], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                ask(f"{url}/_stats")
                break
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def write_rows(path: Path, count: int) -> Path:
    """Distinct rows of the single-tool example."""
    first = json.loads((ROOT / "resources_servers/example_single_tool_call/data/example.jsonl").read_text().splitlines()[0])
    with path.open("w") as file:
        for index in range(count):
            first["responses_create_params"]["input"][1]["content"] = f"What is the weather in place number {index}?"
            file.write(json.dumps({**first, "task_id": f"place-{index}"}) + "\n")
    return path


def model_options(url: str) -> list[str]:
    return ["--model-type", "openai_model", f"+policy_base_url={url}/v1", "+policy_api_key=EMPTY", "+policy_model_name=load"]


def command_cpu(command: list[str], runs: int = 7) -> dict[str, float]:
    """CPU seconds of a command: least and median of `runs`, after one that is not counted."""
    seconds = []
    for run in range(runs + 1):
        pid = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
        )
        usage = os.wait4(pid, 0)[2]
        if run:
            seconds.append(usage.ru_utime + usage.ru_stime)
    return {"min_s": round(min(seconds), 3), "median_s": round(statistics.median(seconds), 3)}


def collect(tagged: Tagged, extra: list[str], rows: Path, count: int, concurrency: int, folder: Path, url: str) -> dict[str, float]:
    """One `gym eval run`; its own CPU, that of the servers, and the rate between the model's first request and last reply."""
    tell(url, "/_reset", {})
    before = tagged.cpu_seconds()
    started = time.time()
    output = folder / "out.jsonl"
    command = [str(GYM), "eval", "run", *extra, "--input", str(rows), "--limit", str(count), "--output", str(output), "--overwrite"]
    with (folder / "collect.log").open("w") as log:
        process = subprocess.Popen([*command, "--concurrency", str(concurrency)], cwd=ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.time() - started
    written = sum(1 for _ in output.open())
    if status or written != count:
        sys.exit(f"the run ended with {status} and {written} of {count} rows:\n{(folder / 'collect.log').read_text()[-2000:]}")
    stats = ask(f"{url}/_stats")
    window = stats["last_reply_unix"] - stats["first_request_unix"]
    cpu = usage.ru_utime + usage.ru_stime + tagged.cpu_seconds() - before
    return {"cpu_s": cpu, "wall_s": wall, "per_s": count / window, "peak_mib": usage.ru_maxrss / 1024}


def figures(
    tagged: Tagged, extra: list[str], rows: Path, count: int, concurrency: int, folder: Path, url: str, small_count: int = SMALL
) -> dict[str, float]:
    small = collect(tagged, extra, rows, small_count, concurrency, folder, url)
    large = collect(tagged, extra, rows, count, concurrency, folder, url)
    return {
        "concurrency": concurrency,
        "rollouts_per_s": round(large["per_s"], 1),
        "rollouts_per_s_whole_command": round(count / large["wall_s"], 1),
        "cpu_ms_per_rollout": round(1000 * (large["cpu_s"] - small["cpu_s"]) / (count - small_count), 2),
        "cpu_ms_per_rollout_whole_command": round(1000 * large["cpu_s"] / count, 2),
        "collector_peak_mib": round(large["peak_mib"], 1),
    }


def start_servers(tagged: Tagged, url: str, folder: Path) -> tuple[subprocess.Popen[bytes], float]:
    """`gym env start`, and the seconds until it says that the servers are ready."""
    log = (folder / "start.log").open("wb")
    started = time.time()
    process = subprocess.Popen(
        [str(GYM), "env", "start", "--config", CONFIG, *model_options(url)],
        cwd=ROOT,
        env=tagged.env,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    while b"servers are ready" not in (folder / "start.log").read_bytes():
        if process.poll() is not None or time.time() - started > 60:
            sys.exit(f"the servers did not start:\n{(folder / 'start.log').read_text()}")
        time.sleep(0.01)
    return process, time.time() - started


def stop(process: "subprocess.Popen[bytes]") -> float:
    began = time.time()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    return time.time() - began


def measure(rollouts: int, concurrencies: list[int], shared: Path) -> dict[str, Any]:
    result: dict[str, Any] = {
        "gym --help": command_cpu([str(GYM), "--help"]),
        "gym env validate (swebench)": command_cpu([str(GYM), "env", "validate", "--config", str(ROOT / SWE_CONFIG)]),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GYM_STATE_DIR"] = str(folder / "state")
        rows = write_rows(folder / "rows.jsonl", rollouts)
        with load_model(shared, folder) as url:
            starts, stops = [], []
            for _ in range(3):
                tagged = Tagged()
                process, seconds = start_servers(tagged, url, folder)
                starts.append(round(seconds, 2))
                time.sleep(2)
                idle = {"processes": len(tagged.processes()), "pss_mib": round(tagged.pss_mib())}
                stops.append(round(stop(process), 2))
            result["start"] = {"seconds_to_ready": starts, "seconds_to_stop": stops, **idle}
            tagged = Tagged()
            process, _ = start_servers(tagged, url, folder)
            result["process"] = [figures(tagged, ["--no-serve"], rows, rollouts, c, folder, url) for c in concurrencies]
            stop(process)
            result["left_over_processes"] = len(tagged.processes())
            alone = Tagged()
            colocated = ["--config", CONFIG, *model_options(url)]
            result["colocated"] = [figures(alone, colocated, rows, rollouts, c, folder, url) for c in concurrencies]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=5_000)
    parser.add_argument("--concurrency", default="16,64,256", help="comma-separated")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    shared = Path(os.environ.get("GYM_SHARED", ROOT.parent / "shared"))
    result = measure(options.rollouts, [int(c) for c in options.concurrency.split(",")], shared)
    text = json.dumps(result, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
