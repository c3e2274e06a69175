"""`gym eval reverify` on SWE tasks, on a real Docker engine: stored patches are graded in fresh sandboxes, and no agent runs."""

from typing import Any

import orjson
import pytest

from tests.integration.conftest import GymRuns
from tests.integration.swe.gym_runs import calc_config, watched

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def test_stored_patches_are_graded_again(runs: GymRuns, docker_engine: None, calc_row: dict[str, Any]) -> None:
    solving = f"git apply <<'END'\n{calc_row['patch']}\nEND\n"
    scripts = {"solved": solving, "unsolved": "echo more >> README.md", "undone": "echo less >> README.md"}
    rows = runs.rows(*({**calc_row, "instance_id": name, "responses_create_params": {"input": text}} for name, text in scripts.items()))
    runs.config.write_text(calc_config(runs.tag))
    assert runs.eval(rows, "--concurrency", 3).ended(200) == 0
    output = runs.folder / "out.jsonl"
    old = {row["instance_id"]: row for row in runs.lines("out.jsonl")}
    assert {name: row["reward"] for name, row in old.items()} == {"solved": 1.0, "unsolved": 0.0, "undone": 0.0}
    # What the agent left is judged, and not what was said of it: two patches change places, and one is lost.
    old["unsolved"]["model_patch"], old["solved"]["model_patch"] = (old[name]["model_patch"] for name in ("solved", "unsolved"))
    del old["undone"]["model_patch"]
    output.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in old.values()))
    before = {path.name: path.read_bytes() for path in runs.folder.glob("out*")}

    with watched() as events:
        again = ("eval", "reverify", output, "--config", runs.config, "--attempts", 1, "-o", runs.folder / "new.jsonl", "--json")
        code, out, err = runs.run(*again, seconds=200)
    assert code == 76, err
    assert before == {path.name: path.read_bytes() for path in runs.folder.glob("out*")}
    new = {row["instance_id"]: row for row in runs.lines("new.jsonl")}
    assert {name: row["reward"] for name, row in new.items() if not row["mask_sample"]} == {"solved": 0.0, "unsolved": 1.0}
    assert new["undone"]["failure_kind"] == "session_lost"
    assert "no model_patch to judge" in new["undone"]["failure_reason"]
    solved = new["unsolved"]
    assert (solved["resolved"], solved["patch_source"]) == (True, "stored")
    was = solved["ng_previous_verdict"]["verdict"]
    assert (was["reward"], was["resolved"], bool(was["failed_required_tests"])) == (0.0, False, True)
    done = orjson.loads(out.splitlines()[-1])
    assert {key: value for key, value in done["verdicts"].items() if key != "flips"} == {
        "unchanged": 0,
        "changed": 3,
        "higher": 1,
        "lower": 1,
        "measured_now": 0,
        "masked_now": 1,
    }
    assert "3 expected = 2 measured + 1 masked" in err
    assert "3 of 3 verdicts changed: 1 higher, 1 lower, 1 masked now" in err
    assert "1 -> 0  box/solved  (rollout 0-0)" in err
    ours = [what for where, what in events if where == f"{done['run_id']}/box"]
    assert sorted(ours) == ["create verifier"] * 2 + ["destroy verifier"] * 2
