"""The example task that comes with the server is the one that this repository can build an image for."""

import json
from pathlib import Path

from resources_servers.swebench.task_data import TaskData

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_example_is_the_small_test_task() -> None:
    (line,) = (REPOSITORY / "resources_servers/swebench/data/example.jsonl").read_text().splitlines()
    row = json.loads(line)
    TaskData.model_validate(row)
    prompt = row.pop("responses_create_params")["input"][0]["content"]
    assert row["problem_statement"] in prompt
    for secret in (row["patch"], row["test_patch"], "test_left_to_right"):
        assert secret not in prompt
    assert row == json.loads((REPOSITORY / "scripts/task_images/calc/row.json").read_text())
