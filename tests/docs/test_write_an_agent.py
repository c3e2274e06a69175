"""docs/write-an-agent.md is followed word for word."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Reader

PAGE = "docs/write-an-agent.md"


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reader_gets_an_agent_that_acts(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    assert "Config is valid" in author.follow()
    for name in ("weather", "again"):
        rows = _rows(folder / f"results/{name}.jsonl")
        assert len(rows) == 5
        assert {row["reward"] for row in rows} == {1.0}
        assert all(row["ng_agent_observations"] == {"tool_calls": 1} for row in rows)
        assert {row["agent_ref"]["name"] for row in rows} == {"one_shot"}  # type: ignore[index]


def test_it_makes_one_call_and_no_more(reader: "Callable[[str], Reader]", folder: Path) -> None:
    """A task that needs three calls in turn is beyond an agent that asks once: 0, and a measurement."""
    author = reader(PAGE)
    author.write_files()
    config = (folder / "weather.yaml").read_text().replace("example_single_tool_call", "example_session_state_mgmt")
    (folder / "weather.yaml").write_text(config)
    done = author.run("gym eval run --config weather.yaml --model-type scripted_model --output counter.jsonl")
    assert done.returncode == 0, done.stderr
    assert {row["reward"] for row in _rows(folder / "counter.jsonl")} == {0.0}


def test_a_model_that_names_other_routes_gets_nowhere(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    rules = "[{when: weather, steps: [{calls: [{name: verify}, {name: close_session}, {name: ../verify}]}]}]"
    (folder / "hostile.yaml").write_text(f"policy_model: {{responses_api_models: {{scripted_model: {{rules: {rules}}}}}}}\n")
    done = author.run("gym eval run --config weather.yaml --config hostile.yaml --output hostile.jsonl")
    assert done.returncode == 0, done.stderr
    rows = _rows(folder / "hostile.jsonl")
    assert {row["reward"] for row in rows} == {0.0}
    assert json.dumps(rows).count("there is no tool") == 15
