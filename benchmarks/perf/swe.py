"""Measures what one SWE episode costs beside the sandboxes' start, the agent and the tests, and where that goes.

    python benchmarks/perf/swe.py [--rows FILE] [--repeats N] [--json FILE]

`gym eval run` sends each row through the whole path with the oracle agent, one episode at a time, after one
warm-up round. The parts are those that the rows tell; what is left of an episode's wall time, as the access log of
its environment server has it, is between them. Needs a Docker engine with the rows' images. Nothing here is a test.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GYM = Path(sys.executable).with_name("gym")
CONFIG = "resources_servers/swebench/configs/swebench_oracle.yaml"
ENVIRONMENT = "swebench_oracle_environment_server"
ROWS = ROOT / "resources_servers/swebench/data/example.jsonl"
CALL = re.compile(r"(\S+) POST (\S+) 200 ([\d.]+)ms")

NOT_OURS = ("task sandbox start", "grading sandbox start", "tests", "agent")


def episodes(rows: Path, repeats: int, folder: Path) -> list[dict[str, float]]:
    """Seconds of each part, one entry an episode; the first round is left out."""
    logs = folder / "logs"
    command = [str(GYM), "eval", "run", "--config", CONFIG, "--env", ENVIRONMENT, "--input", str(rows), "--num-repeats", str(repeats + 1)]
    command += ["--concurrency", "1", "--output", str(folder / "out.jsonl"), "isolation=process", f"log_dir={logs}"]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    found = [parts(json.loads(line)) for line in (folder / "out.jsonl").read_text().splitlines()]
    calls: dict[str, list[float]] = {}
    for log in logs.glob("*.log"):
        for match in CALL.finditer(log.read_text(errors="replace")):
            calls.setdefault(match[2].rpartition("/ng-rollout/")[2].partition("/")[2] or match[2], []).append(float(match[3]) / 1000)
    for part, wall, agent in zip(found, calls["run"], calls["v1/responses"], strict=True):
        part["agent"] = agent
        part["whole episode"] = wall
        part["ours"] = wall - sum(part[name] for name in NOT_OURS)
        part["stopping, calls and the rest"] = part["ours"] - part["preparation"] - part["capture"] - part["applying and reading"]
    return found[len(found) // (repeats + 1) :]


def parts(row: dict[str, Any]) -> dict[str, float]:
    """What a row tells of its times."""
    verification = row["patch_verification_time_taken"]
    return {
        "task sandbox start": row["task_sandbox_start_time_taken"],
        "preparation": row["task_preparation_time_taken"],
        "capture": row["patch_capture_time_taken"],
        "grading sandbox start": row["eval_sandbox_start_time_taken"],
        "tests": row["test_time_s"],
        "applying and reading": verification - row["eval_sandbox_start_time_taken"] - row["test_time_s"],
    }


def main() -> None:
    """Measure, print a table, and write the medians where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=ROWS, help="rows whose images are there")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gym-bench-") as folder:
        found = episodes(options.rows.resolve(), options.repeats, Path(folder))
    medians = {name: round(statistics.median(part[name] for part in found), 3) for name in found[0]}
    print(f"{len(found)} episodes; seconds, median (smallest to largest)")
    for name, value in medians.items():
        values = [part[name] for part in found]
        print(f"  {name:<30} {value:6.3f}  ({min(values):.3f} to {max(values):.3f})")
    if options.json:
        options.json.write_text(json.dumps(medians, indent=2) + "\n")


if __name__ == "__main__":
    main()
