"""`gym eval batch` with tiny recipes and a scripted model: failures do not stop it, Ctrl-C does, and what is unfinished is gone on with."""

import json
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.integration.conftest import GymRuns, wait_for

pytestmark = pytest.mark.slow

COUNTER = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
MODEL = "policy_model: {{responses_api_models: {{scripted_model: {{entrypoint: app.py, rules: {rules}}}}}}}\n"


def recipe(runs: GymRuns, name: str, **step: Any) -> str:
    """A config of the counter example whose model does `step` for every row."""
    rules = [{"when": "", "steps": [step]}]
    return str(runs.write(f"{name}.yaml", f"config_paths: [{COUNTER}]\n" + MODEL.format(rules=json.dumps(rules))))


def listed(runs: GymRuns, *recipes: str, **shared: Any) -> Path:
    return runs.write("list.yaml", json.dumps({"shared": {"limit": 2, **shared}, "runs": recipes}))


def summary(runs: GymRuns) -> dict[str, Any]:
    return {run["name"]: run for run in orjson.loads((runs.folder / "out/summary.json").read_bytes())["runs"]}


def batch(runs: GymRuns, path: Path, *arguments: Any) -> tuple[int, str, str]:
    return runs.run("eval", "batch", path, "--output", runs.folder / "out", *arguments)


def test_it_goes_on_after_runs_that_fail(runs: GymRuns) -> None:
    path = listed(
        runs,
        recipe(runs, "refused", status=401),
        recipe(runs, "broken", status=500),
        recipe(runs, "fine", say="Done."),
        attempts=1,
    )
    code, said, errors = batch(runs, path)
    assert code == 1, errors
    assert errors.count("== ") == 3
    ends = summary(runs)
    assert {name: (end["state"], end["exit_code"]) for name, end in ends.items()} == {
        "refused": ("error", 1),
        "broken": ("incomplete", 76),
        "fine": ("complete", 0),
    }
    assert "credentials" in ends["refused"]["problem"]
    assert (ends["broken"]["account"]["failed"], ends["broken"]["mean_reward"]) == (2, None), "a failure is no zero"
    assert (ends["fine"]["account"]["measured"], ends["fine"]["mean_reward"]) == (2, 0.0)
    assert said == (runs.folder / "out/summary.txt").read_text()
    assert len(runs.lines("out/fine/rollouts.jsonl")) == 2
    runs.check_nothing_left()


def test_all_are_checked_before_the_first_begins(runs: GymRuns) -> None:
    path = listed(runs, recipe(runs, "fine", say="Done."), str(runs.write("wrong.yaml", f"config_paths: [{COUNTER}]\nno_such: 1\n")))
    for arguments in ((), ("--dry-run",)):
        code, said, errors = batch(runs, path, *arguments)
        assert (code, said) == (1, "")
        assert "wrong: " in errors
        assert "no_such" in errors
        assert "Traceback" not in errors
    assert not (runs.folder / "out").exists()


def test_a_dry_run_prints_commands_that_work(runs: GymRuns) -> None:
    path = listed(runs, recipe(runs, "fine", say="Done."))
    code, said, errors = batch(runs, path, "--dry-run", "drain_timeout_seconds=7")
    assert code == 0, errors
    (command,) = said.splitlines()
    assert command.startswith("gym eval run --config ")
    assert command.endswith(f"--limit 2 drain_timeout_seconds=7 --output {runs.folder}/out/fine/rollouts.jsonl --resume")
    assert not (runs.folder / "out").exists()
    code, _, errors = runs.run(*command.split()[1:])
    assert code == 0, errors


@pytest.mark.parametrize("group", [False, True], ids=["to the batch", "to its group, as a terminal does"])
def test_an_interrupt_stops_it_in_good_order(runs: GymRuns, group: bool) -> None:
    path = listed(runs, recipe(runs, "first", hang=True), recipe(runs, "second", say="Done."))
    started = runs.begin("eval", "batch", path, "--output", runs.folder / "out")
    wait_for(lambda: "2 rollouts of 2 rows" in started.errors, lambda: started.errors, 40)
    started.signal(signal.SIGINT, group=group)
    assert started.ended(30) == 130, started.errors
    ends = summary(runs)
    assert (ends["first"]["state"], ends["second"]["state"]) == ("interrupted", "not begun")
    assert ends["first"]["account"]["owed"] == 2
    runs.check_nothing_left()


def test_what_a_killed_batch_left_is_gone_on_with(runs: GymRuns) -> None:
    path = listed(runs, recipe(runs, "slow", sleep=0.5, say="Done."), recipe(runs, "quick", say="Done."), limit=4, concurrency=1)
    started = runs.begin("eval", "batch", path, "--output", runs.folder / "out")
    wait_for(lambda: runs.lines("out/slow/rollouts.jsonl"), lambda: started.errors, 40)
    started.signal(signal.SIGKILL)
    started.ended()
    wait_for(lambda: not runs.processes(), "the run ends with its batch", 20)
    before = runs.lines("out/slow/rollouts.jsonl")
    assert len(before) < 4
    code, _, errors = batch(runs, path)
    assert code == 0, errors
    assert "resumed: " in errors
    after = runs.lines("out/slow/rollouts.jsonl")
    assert after[: len(before)] == before
    assert len({row["_ng_rollout_id"] for row in after}) == len(after) == 4
    assert {end["state"] for end in summary(runs).values()} == {"complete"}
    code, _, errors = batch(runs, path, "--overwrite", "--json")
    assert code == 0, errors
    assert "resumed: " not in errors


def test_one_batch_at_a_time(runs: GymRuns) -> None:
    path = listed(runs, recipe(runs, "first", hang=True))
    started = runs.begin("eval", "batch", path, "--output", runs.folder / "out")
    wait_for(lambda: "2 rollouts of 2 rows" in started.errors, lambda: started.errors, 40)
    code, _, errors = batch(runs, path)
    assert code == 1
    assert "another collector" in errors
    started.signal(signal.SIGTERM)
    assert started.ended(30) == 130
