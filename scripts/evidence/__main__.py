"""One rollout with the real OpenCode for each session recipe of the SWE data sets, and what there was to see, as a page.

    python scripts/evidence [--rows PREFIX=FILE]... [--config FILE]... [--write FILE]

Tasks are the first example of each data set, and all rows that are given (PREFIX is a recipe's, e.g. swe_gym). Without --config
a scripted model makes each task's gold patch with OpenCode's own tools; with it the config's `policy_model` is asked.
A last run has its task's container killed after the fourth model call. Needs a Docker engine with the tasks' images
(scripts/build_task_images.py makes those of the examples). Exits with 1 if anything did not go as the page says.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from gold_steps import steps_of
from watching import Box, containers, watched

ROOT = Path(__file__).resolve().parents[2]
GYM = str(Path(sys.executable).with_name("gym"))
BENCHMARKS = {
    "swebench_verified": ("swebench:verified", "benchmarks/swebench/verified/opencode.yaml", "swebench/data/example"),
    "swebench_multilingual": (
        "swebench:multilingual",
        "benchmarks/swebench/multilingual/opencode.yaml",
        "swebench/data/example_multilingual",
    ),
    "swebench_pro": ("swebench:pro", "benchmarks/swebench/pro/opencode.yaml", "swebench_pro/data/example"),
}
TRAINING = {
    name: (name, f"resources_servers/{name}/configs/{name}_opencode.yaml", f"{name}/data/example")
    for name in ("swe_gym", "r2e_gym", "scale_swe")
}
RECIPES = BENCHMARKS | TRAINING
"""Prefix -> taskset, recipe, examples."""
ORDER = ["/seed_session", "/v1/agent_sessions", "/v1/responses", "/v1/agent_sessions/close", "/verify", "/close_session"]
LINE = re.compile(r"^(\S+) INFO gym.access (\S+) POST (?:/ng-rollout/[^/]+)?(\S+) (\d+) ([\d.]+)ms(?: episode=(\S+))?", re.MULTILINE)
UNKNOWN = "OpenCode launch outcome is unknown; cannot confirm termination"


def fail(reason: str) -> NoReturn:
    """The page is not written."""
    sys.exit(f"evidence: {reason}")


def expect(what: str, found: object, wanted: object) -> None:
    """End with what was found, where it is not what the page says."""
    if found != wanted:
        fail(f"{what}: expected {wanted!r}, found {found!r}")


class Servers:
    """`gym env start` of some recipes, in a folder of its own."""

    def __init__(self, folder: Path, recipes: list[str], model: list[str], script: list[dict[str, Any]]) -> None:
        self.folder, self.logs = folder, folder / "logs"
        config: dict[str, Any] = {"config_paths": [*recipes, *model]}
        if not model:
            config["config_paths"].append("responses_api_models/scripted_model/configs/scripted_model.yaml")
            config["policy_model"] = {"responses_api_models": {"scripted_model": {"rules": script}}}
        (folder / "run.yaml").write_text(json.dumps(config))
        self.env = {**os.environ, "GYM_STATE_DIR": str(folder / "state"), "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "1"}
        command = [GYM, "env", "start", "--json", "--config", str(folder / "run.yaml"), "--log-dir", str(self.logs), "isolation=process"]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready:
            fail("the servers did not start")
        self.run_id = json.loads(ready)["run_id"]

    def collect(self, tasks: list[dict[str, Any]], **options: Any) -> "subprocess.Popen[bytes]":
        """Begin `gym eval run` over these tasks."""
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        paths = ["--input", str(self.folder / "rows.jsonl"), "--output", str(self.folder / "out.jsonl")]
        return subprocess.Popen([GYM, "eval", "run", "--no-serve", *paths, "--concurrency", "2"], cwd=ROOT, env=self.env, **options)

    def stop(self) -> None:
        """Stop the servers; by then, and after, no container may be left."""
        expect("containers before the servers stopped", containers(self.run_id), [])
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        expect("containers after the servers stopped", containers(self.run_id), [])

    def rows(self, name: str = "out") -> list[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, episode: str) -> list[tuple[str, str]]:
        """Route and status of the contract's calls for one episode, in the order in which they began."""
        found: list[tuple[datetime, str, str]] = []
        for log in self.logs.glob("*.log"):
            for ended, _, route, status, took, whose in LINE.findall(log.read_text()):
                if whose == episode and route in ORDER:
                    found.append((datetime.fromisoformat(ended) - timedelta(milliseconds=float(took)), route, status))
        return [(route, status) for _, route, status in sorted(found)]


def span(boxes: list[Box], role: str) -> str:
    return ", ".join(f"{role} {box.began:.0f}–{box.ended:.0f} s" for box in boxes if box.role == role)


def line_of(servers: Servers, row: dict[str, Any], boxes: list[Box]) -> str:
    """The row of the table, once all that the page says of every rollout is seen to hold."""
    episode = row["_ng_rollout_id"]
    taskset = row["_ng_task_id"]["taskset"]
    recipe = next(path for name, path, _ in RECIPES.values() if name == taskset)
    task, patch = row["_ng_task_id"]["task_id"], row["model_patch"]
    expect(f"{task}: the calls", servers.calls(episode), [(route, "200") for route in ORDER])
    own = sorted((box for box in boxes if (box.run_id, box.episode) == (servers.run_id, episode)), key=lambda box: box.began)
    if len(own) < 2 or any(later.began < earlier.ended for earlier, later in pairwise(own)):
        fail(f"{task}: its containers were not two or more, one after the other: {own}")
    changed = re.findall(r"^diff --git a/(\S+)", patch, re.MULTILINE)
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    left = f"{len(patch)} characters, {changed[0]}{more}" if changed else "none"
    graded = " / ".join(str(bool(row[name])).lower() for name in ("evaluation_completed", "mask_sample"))
    calls = row["ng_model_call_capture"]["metrics"]["num_calls"]
    short = task if len(task) < 60 else f"{task[:44]}…"
    return f"| {recipe} | {short} | {row['reward']} | {graded} | {left} | {calls} | {span(own, 'task')}; {span(own, 'verifier')} |"


def solve(folder: Path, tasks: list[dict[str, Any]], model: list[str]) -> list[str]:
    """Run every task with its recipe; the rows of the table."""
    script = [{"when": re.escape(told(task["task_input"])), "steps": steps_of(task["task_input"]["patch"])} for task in tasks]
    recipes = sorted({path for name, path, _ in RECIPES.values() if name in {task["task_id"]["taskset"] for task in tasks}})
    with watched() as boxes:
        servers = Servers(folder, recipes, model, script)
        try:
            code = servers.collect(tasks).wait()
            expect("containers after the collection", containers(servers.run_id), [])
        finally:
            servers.stop()
    expect("the exit code of gym eval run", code, 0)
    expect("rollouts", len(servers.rows()), len(tasks))
    order = [task["task_id"] for task in tasks]
    return [line_of(servers, row, boxes) for row in sorted(servers.rows(), key=lambda row: order.index(row["_ng_task_id"]))]


def interrupt(folder: Path, task: dict[str, Any]) -> str:
    """Kill the task's container after the fourth model call; what came of it, in one sentence."""

    def bash(command: str) -> dict[str, Any]:
        return {"call": "bash", "arguments": {"command": command, "description": "work", "timeout": 600_000}}

    steps = [*(bash(f"echo {number} >> notes") for number in range(3)), bash("sleep 500")]
    servers = Servers(folder, [RECIPES["swe_gym"][1]], [], [{"when": ".", "steps": steps}])
    try:
        collecting = servers.collect([task])
        log = servers.logs / "policy_model.log"
        while (
            collecting.poll() is None
            and len(re.findall(r" POST /ng-rollout/\S+/chat/completions ", log.read_text() if log.exists() else "")) < 4
        ):
            time.sleep(0.2)
        (box,) = containers(servers.run_id)
        subprocess.run(["docker", "kill", box], capture_output=True, check=True)
        code = collecting.wait()
        expect("containers after the collection", containers(servers.run_id), [])
    finally:
        servers.stop()
    expect("the exit code of gym eval run", code, 76)
    expect("rows", servers.rows(), [])
    (failure,) = servers.rows("out_failures")
    seen = {name: failure[f"_ng_failure_{name}"] for name in ("class", "stage", "terminal")}
    expect("the failure", seen, {"class": "environment_server_failed", "stage": "agent", "terminal": False})
    if UNKNOWN not in failure["_ng_failure_message"]:
        fail(f"the failure says: {failure['_ng_failure_message']}")
    expected = [("/v1/responses", "500"), ("/v1/agent_sessions/close", "500"), ("/close_session", "200")]
    expect("the calls", [call for call in servers.calls(failure["_ng_rollout_id"]) if call[0] not in ORDER[:2]], expected)
    closed = f"`/v1/agent_sessions/close` 500 ({UNKNOWN})"
    return f"`{task['task_id']['task_id']}`: `/v1/responses` 500, {closed}, `/verify` never called, `/close_session` 200"


def told(row: dict[str, Any]) -> str:
    """The text of the task."""
    given = row["responses_create_params"]["input"]
    return given if isinstance(given, str) else given[-1]["content"]


PAGE = Path(__file__).with_name("page.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", action="append", default=[], metavar="PREFIX=FILE", help=f"more tasks; PREFIX is one of {', '.join(RECIPES)}"
    )
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help="the model, in place of the scripted one")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there, and not to stdout")
    options = parser.parse_args()
    sources = [(prefix, ROOT / f"resources_servers/{examples}.jsonl", 1) for prefix, (_, _, examples) in RECIPES.items()]
    for given in options.rows:
        prefix, _, path = given.partition("=")
        if prefix not in RECIPES or not Path(path).is_file():
            fail(f"--rows {given}: wanted is PREFIX=FILE, with a prefix of {', '.join(RECIPES)} and a file that is there")
        sources.append((prefix, Path(path), 1_000_000))
    tasks: list[dict[str, Any]] = []
    for prefix, path, most in sources:
        rows = [json.loads(line) for line in path.read_text().splitlines()[:most]]
        tasks += [{"task_id": {"taskset": RECIPES[prefix][0], "task_id": row["instance_id"]}, "task_input": row} for row in rows]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        table = solve(Path(first), tasks, options.config)
        interrupted = interrupt(Path(second), next(task for task in tasks if task["task_id"]["taskset"] == "swe_gym"))
    model = (
        f"the model of {', '.join(options.config)}"
        if options.config
        else "a scripted model that makes the gold patch with OpenCode's own tools"
    )
    engine = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], text=True, capture_output=True, check=True
    ).stdout.strip()
    extra = ", then rows of the published data sets" if options.rows else ""
    page = PAGE.read_text().format(
        model=model, machine=f"{os.cpu_count()} cores, engine {engine}", extra=extra, table="\n".join(table), interrupted=interrupted
    )
    if options.write:
        options.write.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
