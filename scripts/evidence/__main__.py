"""One rollout for each session recipe of the SWE data sets, with the real harness, and what there was to see, as a page.

    python scripts/evidence [--rows DATA_SET=FILE]... [--config FILE]... [--write FILE]

Tasks are the first example of each data set, and all rows that are given (DATA_SET is e.g. swe_gym). Without --config a scripted
model makes each task's gold patch with the harness's own tools; with it the config's `policy_model` is asked.
A last run of each harness has its task's container killed after the fourth model call. Needs a Docker engine with the tasks' images
(scripts/build_task_images.py makes those of the examples). Exits with 1 if anything did not go as the page says.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from gold_steps import steps_of
from harnesses import HARNESSES, TASKS, Harness
from servers import ORDER, ROOT, Servers, expect, fail
from watching import Box, containers, watched

PAGE = Path(__file__).with_name("page.md")


def span(boxes: list[Box], role: str) -> str:
    return ", ".join(f"{role} {box.began:.0f}–{box.ended:.0f} s" for box in boxes if box.role == role)


def line_of(servers: Servers, harness: Harness, row: dict[str, Any], boxes: list[Box]) -> str:
    """The row of the table, once all that the page says of every rollout is seen to hold."""
    episode, task, patch = row["_ng_rollout_id"], row["_ng_task_id"]["task_id"], row["model_patch"]
    recipe = next(recipe for name, recipe in harness.recipes.items() if TASKS[name][0] == row["_ng_task_id"]["taskset"])
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


def solve(folder: Path, harness: Harness, tasks: list[dict[str, Any]], model: list[str]) -> list[str]:
    """Run every task with its recipe; the rows of the table."""
    script = [{"when": told(task["task_input"]), "steps": steps_of(task["task_input"]["patch"], harness)} for task in tasks]
    with watched() as boxes:
        servers = Servers(folder, sorted(harness.recipes.values()), model, script)
        try:
            code = servers.collect(tasks).wait()
            expect("containers after the collection", containers(servers.run_id), [])
        finally:
            servers.stop()
    expect("the exit code of gym eval run", code, 0)
    expect("rollouts", len(servers.rows()), len(tasks))
    order = [task["task_id"] for task in tasks]
    rows = sorted(servers.rows(), key=lambda row: order.index(row["_ng_task_id"]))
    return [line_of(servers, harness, row, boxes) for row in rows]


def interrupt(folder: Path, harness: Harness, task: dict[str, Any]) -> str:
    """Kill the task's container after the fourth model call; what came of it, in one sentence."""
    commands = [*(f"echo {number} >> notes" for number in range(3)), "sleep 500"]
    script = [{"when": ".", "steps": [{"calls": [harness.shell(command)]} for command in commands]}]
    servers = Servers(folder, [harness.recipes[harness.killed]], [], script)
    try:
        collecting = servers.collect([task])
        while collecting.poll() is None and servers.model_calls() < 4:
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
    unknown = f"{harness.title} launch outcome is unknown; cannot confirm termination"
    if unknown not in failure["_ng_failure_message"]:
        fail(f"the failure says: {failure['_ng_failure_message']}")
    expected = [("/v1/responses", "500"), ("/v1/agent_sessions/close", "500"), ("/close_session", "200")]
    expect("the calls", [call for call in servers.calls(failure["_ng_rollout_id"]) if call[0] not in ORDER[:2]], expected)
    closed = f"`/v1/agent_sessions/close` 500 ({unknown})"
    return (
        f"- {harness.title}, `{task['task_id']['task_id']}`: `/v1/responses` 500, {closed}, `/verify` never called, `/close_session` 200."
    )


def told(row: dict[str, Any]) -> str:
    """A pattern for the text of the task, whatever a harness makes of its line ends."""
    given = row["responses_create_params"]["input"]
    text = given if isinstance(given, str) else given[-1]["content"]
    return r"\s+".join(map(re.escape, text.split()))


def tasks_of(given: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The tasks of each data set: its first example, and the rows that were given."""
    sources = [(name, ROOT / f"resources_servers/{examples}.jsonl", 1) for name, (_, examples) in TASKS.items()]
    for text in given:
        name, _, path = text.partition("=")
        if name not in TASKS or not Path(path).is_file():
            fail(f"--rows {text}: wanted is DATA_SET=FILE, with one of {', '.join(TASKS)} and a file that is there")
        sources.append((name, Path(path), 1_000_000))
    tasks: dict[str, list[dict[str, Any]]] = {name: [] for name in TASKS}
    for name, path, most in sources:
        for row in map(json.loads, path.read_text().splitlines()[:most]):
            tasks[name].append({"task_id": {"taskset": TASKS[name][0], "task_id": row["instance_id"]}, "task_input": row})
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="append", default=[], metavar="DATA_SET=FILE", help=f"more tasks, of {', '.join(TASKS)}")
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help="the model, in place of the scripted one")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there, and not to stdout")
    options = parser.parse_args()
    tasks = tasks_of(options.rows)
    table: list[str] = []
    interrupted: list[str] = []
    for harness in HARNESSES:
        wanted = [
            task for number in range(max(map(len, tasks.values()))) for name in harness.recipes for task in tasks[name][number : number + 1]
        ]
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            table += solve(Path(first), harness, wanted, options.config)
            interrupted.append(interrupt(Path(second), harness, tasks[harness.killed][0]))
    scripted = "a scripted model that makes the gold patch with the harness's own tools"
    version = ["docker", "version", "--format", "{{.Server.Version}}"]
    engine = subprocess.run(version, text=True, capture_output=True, check=True).stdout.strip()
    page = PAGE.read_text().format(
        model=f"the model of {', '.join(options.config)}" if options.config else scripted,
        machine=f"{os.cpu_count()} cores, engine {engine}",
        extra=", then rows of the published data sets" if options.rows else "",
        table="\n".join(table),
        interrupted="\n".join(interrupted),
    )
    if options.write:
        options.write.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
