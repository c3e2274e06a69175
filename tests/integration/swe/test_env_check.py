"""`gym env check` on a real Docker engine: which tasks hold is found out, and said."""

import json
from typing import Any

import pytest

from tests.integration.conftest import GymRuns
from tests.integration.swe.gym_runs import calc_config


def check(runs: GymRuns, rows: list[dict[str, Any]], *arguments: Any) -> tuple[int, str, str]:
    path = runs.rows(*({**row, "responses_create_params": {"input": "x"}} for row in rows))
    runs.config.write_text(calc_config(runs.tag, path))
    return runs.run("env", "check", "--config", runs.config, *arguments, seconds=200)


@pytest.mark.docker
@pytest.mark.slow
def test_the_check_finds_what_does_not_hold(runs: GymRuns, docker_engine: None, calc_row: dict[str, Any]) -> None:
    tests = json.loads(calc_row["PASS_TO_PASS"])
    useless = "diff --git a/README.md b/README.md\n--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-# calc\n+# Calc\n"
    rows = [
        calc_row,
        {**calc_row, "instance_id": "useless", "patch": useless},
        {**calc_row, "instance_id": "solved", "FAIL_TO_PASS": json.dumps(tests[:1]), "PASS_TO_PASS": "[]"},
        {**calc_row, "instance_id": "unfit", "patch": calc_row["patch"].replace("-    if tokens", "-    nothing like it")},
        {**calc_row, "instance_id": "absent", "image": "gym-test/there-is-none:1"},
    ]
    report, supported = runs.folder / "made" / "report.json", runs.folder / "supported.txt"
    kept = runs.folder / "kept"
    code, out, err = check(runs, rows, "--report", report, "--write-supported", supported, "--output", kept, "--concurrency", 3)
    assert code == 1, err
    found = {task["task_id"]: task for task in json.loads(report.read_text())["details"]}
    assert {name: task["state"] for name, task in found.items()} == {
        "gym-test__calc-1": "holds",
        "useless": "broken",
        "solved": "broken",
        "unfit": "broken",
        "absent": "unchecked",
    }
    assert "failed or missing: tests/test_evaluate.py" in found["useless"]["reason"]
    assert found["solved"]["reason"] == "it is resolved without any change"
    assert "does not apply" in found["unfit"]["reason"]
    assert "gym-test/there-is-none:1" in found["absent"]["reason"]
    assert supported.read_text() == "gym-test__calc-1\n"
    assert out.splitlines()[-1] == "gold 2/4 resolved, no-op 1/4; 3 broken; 1 unchecked"
    assert any(line.startswith("solved ") and "without any change" in line for line in out.splitlines())
    assert len(runs.lines("kept/oracle.jsonl")) == 3
    assert runs.run_folders() == []


@pytest.mark.docker
@pytest.mark.slow
def test_all_tasks_hold(runs: GymRuns, docker_engine: None, calc_row: dict[str, Any]) -> None:
    code, out, err = check(runs, [calc_row], "--repeats", 2, "--json")
    assert code == 0, err
    (task,) = json.loads(out)["details"]
    assert (task["oracle"], task["noop"]) == ("resolved 2x", "not resolved 2x")


def test_nothing_to_check_is_an_error(runs: GymRuns, calc_row: dict[str, Any]) -> None:
    code, out, err = check(runs, [{"instance_id": 3}])
    assert code == 1
    assert "no task could be checked" in err
    assert "Traceback" not in out + err
    code, _, err = check(runs, [calc_row], "--resources-server", "bok")
    assert (code, "did you mean 'box'?" in err) == (1, True), err
    config = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
    code, _, err = runs.run("env", "check", "--config", config, "--model-type", "scripted_model")
    assert code == 1
    assert "no server of SWE tasks" in err
    (runs.folder / "old").mkdir()
    (runs.folder / "old" / "noop.jsonl").touch()
    for option, value, reason in (
        ("--output", runs.config, "is a file: name a folder"),
        ("--output", runs.folder / "old", "holds an earlier check"),
        ("--report", runs.folder, "is a folder: name a file"),
        ("--write-supported", runs.config / "x", "its folder cannot be made"),
    ):
        code, _, err = check(runs, [calc_row], option, value)
        assert (code, reason in err, len(err.splitlines())) == (1, True, 1), err
