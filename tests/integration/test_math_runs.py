"""GSM8K from the command line: verdicts by text, library and judge, and none where both fail."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import GymRuns
from tests.integration.swe.gym_runs import skip_without_environment

pytestmark = pytest.mark.slow

GSM8K = "benchmarks/gsm8k/config.yaml"
SERVER = "resources_servers/math_with_judge/configs"
JUDGED = """
policy_model:
  responses_api_models:
    scripted_model: {{entrypoint: app.py, rules: {policy}}}
math_with_judge_resources_server:
  resources_servers:
    math_with_judge:
      should_use_judge: true
      judge_model_server: {{type: responses_api_models, name: judge_model}}
      judge_timeout_seconds: 5
judge_model:
  responses_api_models:
    scripted_model: {{entrypoint: app.py, rules: {judge}}}
"""


def rule(when: str, **step: Any) -> dict[str, Any]:
    return {"when": when, "steps": [step]}


def row(name: str) -> dict[str, Any]:
    return {"task_id": name, "question": f"What is {name}?", "expected_answer": "5", "responses_create_params": {"input": f"{name}?"}}


def judged(runs: GymRuns, policy: list[dict[str, Any]], judge: list[dict[str, Any]], name: str = "judged.yaml") -> Path:
    return runs.write(name, JUDGED.format(policy=json.dumps(policy), judge=json.dumps(judge)))


def evaluate(runs: GymRuns, *arguments: Any, config: str = GSM8K, code: int = 0) -> dict[str, dict[str, Any]]:
    output = runs.folder / "out.jsonl"
    ended, _, said = runs.run("eval", "run", "--config", config, *arguments, "--output", output, seconds=280)
    skip_without_environment(said)
    assert ended == code, said
    return {row["_ng_task_id"]["task_id"]: row for row in runs.lines("out.jsonl")}


def test_the_first_evaluation_of_a_newcomer(runs: GymRuns) -> None:
    rows = evaluate(runs, "--model-type", "scripted_model")
    assert {name: row["reward"] for name, row in rows.items()} == {
        "tea-house": 1.0,
        "bookshelf": 1.0,
        "bicycle": 0.0,
        "savings": 1.0,
        "orchard": 1.0,
    }
    assert rows["bicycle"]["extracted_answer"] == "72"
    assert {row["verdict_source"] for row in rows.values()} == {"text", "library"}
    runs.check_nothing_left()


def test_the_answers_of_the_example_in_their_several_forms(runs: GymRuns) -> None:
    rows = evaluate(runs, "--model-type", "scripted_model", config=f"{SERVER}/math_with_judge_example.yaml")
    assert {row["reward"] for row in rows.values()} == {1.0}
    assert len(rows) == 5


def test_a_judge_is_laid_over_a_benchmark(runs: GymRuns) -> None:
    command = ["env", "validate", "--model-type", "scripted_model", "--config", GSM8K, "--config", f"{SERVER}/judge.yaml"]
    runs.env |= {"JUDGE_BASE_URL": "http://127.0.0.1:1/v1", "JUDGE_MODEL_NAME": "judge"}
    code, said, errors = runs.run(*command)
    assert (code, "Config is valid" in said) == (0, True), errors
    del runs.env["JUDGE_BASE_URL"]
    code, _, errors = runs.run(*command)
    assert (code, "JUDGE_BASE_URL" in errors) == (1, True)


def test_a_judge_decides_what_the_library_does_not_and_is_never_a_zero_when_it_fails(runs: GymRuns, tmp_path: Path) -> None:
    policy = [
        rule("silent", say="I cannot tell."),
        rule("right", say=r"\boxed{5.0}"),
        rule("(?P<name>.*)\\?", say=r"\boxed{\text{{name}}}"),
    ]
    judge = [
        rule("word[^~]*answer_A>\\s*5", say="[[A=B]]"),
        rule("word", say="The same.\n[[A=B]]"),
        rule("wrong", say="[[A!=B]]"),
        rule("one-sided[^~]*answer_A>\\s*5", say="[[A=B]]"),
        rule("one-sided", say="[[A!=B]]"),
        rule("babble", say="Well, perhaps."),
        rule("broken", status=500),
        rule("busy", status=429, retry_after=0.1),
        rule("hanging", hang=True),
    ]
    config = judged(runs, policy, judge)
    names = ["silent", "right", "word", "wrong", "one-sided", "babble", "broken", "busy", "hanging"]
    rows = evaluate(runs, "--config", config, "--input", runs.rows(*map(row, names)), "--attempts", "1", code=76)
    assert {name: rows[name]["reward"] for name in names if not rows[name]["mask_sample"]} == {
        "silent": 0.0,
        "right": 1.0,
        "word": 1.0,
        "wrong": 0.0,
        "one-sided": 0.0,
    }
    assert {name: rows[name]["failure_kind"] for name in names if rows[name]["mask_sample"]} == {
        "babble": "judge_unparseable",
        "broken": "judge_failed",
        "busy": "judge_failed",
        "hanging": "judge_failed",
    }
    assert [rows[name]["verdict_source"] for name in ("silent", "right", "word", "wrong")] == ["no_answer", "library", "judge", "judge"]
    assert [entry["order"] for entry in rows["word"]["judge_evaluations"]] == ["expected_first", "answer_first"]
    assert rows["word"]["library_reward"] == 0.0
    coverage = json.loads((runs.folder / "out_coverage.json").read_text())
    assert (coverage["measured"], coverage["masked"]) == (5, 4)
    metrics = json.loads((runs.folder / "out_aggregate_metrics.json").read_text())
    assert metrics["overall"]["mean_reward"] == pytest.approx(2 / 5)
    runs.check_nothing_left()


def test_verdicts_of_a_judge_that_failed_are_made_later(runs: GymRuns) -> None:
    policy = [rule("", say=r"\boxed{\text{five}}")]
    failing, working = judged(runs, policy, [rule("", status=500)]), judged(runs, policy, [rule("", say="[[A=B]]")], "working.yaml")
    rows = evaluate(runs, "--config", failing, "--input", runs.rows(row("first")), "--attempts", "1", code=76)
    assert rows["first"]["failure_kind"] == "judge_failed"
    code, _, said = runs.run(
        "eval", "reverify", runs.folder / "out.jsonl", "--config", GSM8K, "--config", working, "--output", runs.folder / "later.jsonl"
    )
    assert code == 0, said
    (again,) = runs.lines("later.jsonl")
    assert (again["reward"], again["mask_sample"], again["verdict_source"]) == (1.0, False, "judge")


def test_a_key_of_the_judge_that_is_refused_ends_the_run(runs: GymRuns) -> None:
    config = judged(runs, [rule("", say=r"\boxed{4}")], [rule("", status=401)])
    names = [f"row{number}" for number in range(8)]
    evaluate(runs, "--config", config, "--input", runs.rows(*map(row, names)), "--concurrency", "1", code=1)
    coverage = json.loads((runs.folder / "out_coverage.json").read_text())
    assert (coverage["measured"], coverage["owed"] >= 6) == (0, True)


def test_what_the_library_cannot_tell_is_masked_where_there_is_no_judge(runs: GymRuns) -> None:
    model = runs.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {entrypoint: app.py, rules: RULES}}}")
    endless = r"\boxed{\sum_{n=1}^{99999999} \frac{1}{n^{n^{n}}}}"
    model.write_text(model.read_text().replace("RULES", json.dumps([rule("endless", say=endless), rule("", say=r"\boxed{5}")])))
    rows = evaluate(
        runs,
        *("--config", model, "--input", runs.rows(row("endless"), row("fine"), row("unreadable") | {"expected_answer": "?"})),
        *("--attempts", "1", "+gsm8k_resources_server.resources_servers.math_with_judge.library_timeout_seconds=1"),
        code=76,
    )
    assert rows["fine"]["reward"] == 1.0
    assert {name: rows[name]["failure_kind"] for name in ("endless", "unreadable")} == dict.fromkeys(
        ("endless", "unreadable"), "verifier_error"
    )
    assert "took more than 1 s, and no judge is used" in rows["endless"]["failure_reason"]
    assert "cannot read the expected answer '?'" in rows["unreadable"]["failure_reason"]
