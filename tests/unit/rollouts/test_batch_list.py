"""The list of `gym eval batch`: what each run comes to, and mistakes with their place."""

from pathlib import Path

import pytest

from gym.config.errors import ConfigErrors, UserError
from gym.rollouts.batch import BatchRun, read_batch
from gym.rollouts.batch_summary import State, as_text, ended, exit_code


def read(folder: Path, text: str, *overrides: str, limit: int | None = None) -> list[BatchRun]:
    path = folder / "list.yaml"
    path.write_text(text)
    return read_batch(path, list(overrides), limit)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(folder, text)
    return [str(problem).replace(str(folder / "list.yaml"), "list.yaml") for problem in caught.value.problems]


def test_runs_with_shared_settings(tmp_path: Path) -> None:
    first, second, third = read(
        tmp_path,
        """
shared: {config: model.yaml, concurrency: 8, model_type: vllm_model, overrides: [a=1]}
runs:
- benchmarks/gsm8k/config.yaml
- recipes/second.yaml
- {name: last, config: [x.yaml, y.yaml], concurrency: 2, num_repeats: 4, dataset: d, agent_type: noop_agent, overrides: b=2}
""",
        "c=3",
        limit=5,
    )
    assert (first.name, second.name, third.name) == ("gsm8k", "second", "last")
    assert " ".join(first.arguments()) == (
        "--config benchmarks/gsm8k/config.yaml --config model.yaml --model-type vllm_model --limit 5 --concurrency 8 a=1 c=3"
    )
    assert " ".join(third.arguments()) == (
        "--config x.yaml --config y.yaml --config model.yaml --model-type vllm_model --agent-type noop_agent "
        "--dataset d --limit 5 --concurrency 2 --num-repeats 4 "
        "a=1 b=2 c=3"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("runs: []", "list.yaml:1:1: error[wrong-value]: runs: "),
        ("shared: {}", "list.yaml:1:1: error[missing-key]: runs: is required — add runs: …"),
        ("runs:\n- {config: a.yaml, concurency: 3}", "did you mean 'concurrency'?"),
        ("shared: {limit: few}\nruns: [a.yaml]", "list.yaml:1:10: error[wrong-value]: shared.limit: is not a whole number ('few')"),
        ("runs:\n- {name: ../up, config: a.yaml}", "a run needs a name of letters"),
        ("runs:\n- {model_type: vllm_model}", "a run needs a name of letters"),
        (
            "runs:\n- a/opencode.yaml\n- b/opencode.yaml",
            "list.yaml:3:3: error[duplicate-name]: runs[1]: another run is called 'opencode' too",
        ),
        ("runs: [a.yaml", "error[yaml-syntax]"),
    ],
)
def test_a_mistake_in_the_list(tmp_path: Path, text: str, line: str) -> None:
    found = problems(tmp_path, text)
    assert any(line in problem for problem in found), found
    assert all("\n" not in problem for problem in found)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no batch list"):
        read_batch(tmp_path / "none.yaml", [])


def test_the_summary_tells_ends_apart() -> None:
    coverage = {"expected": 4, "measured": 3, "masked": 1, "unscored": 0, "failed": 0, "owed": 0}
    done = {"event": "done", "coverage": coverage, "metrics": {"mean_reward": 0.5, "standard_error": None}, "problem": None}
    out = Path("o/rollouts.jsonl")
    incomplete = ended("a", out, 76, [{"event": "launch"}, done], 3725.0)
    killed = ended("b", out, -9, [{"event": "launch"}], 1.0)
    mistaken = ended("c", out, 1, [{"event": "error", "message": "the server ended"}], 1.0)
    silent = ended("d", out, 3, [], 1.0)
    assert [end.state for end in (incomplete, killed, mistaken, silent)] == [State.INCOMPLETE, State.ERROR, State.ERROR, State.ERROR]
    assert [end.problem for end in (killed, mistaken, silent)] == ["killed by signal 9", "the server ended", "ended with exit code 3"]
    text = as_text([incomplete, killed])
    assert text.splitlines()[1].split() == ["a", "incomplete", "4", "3", "1", "0", "0", "0", "0.5000", "1:02:05"]
    assert text.splitlines()[-1] == "b: killed by signal 9"
    assert exit_code([incomplete], interrupted=False) == 76
    assert exit_code([incomplete, killed], interrupted=False) == 1
    assert exit_code([incomplete, killed], interrupted=True) == 130
