"""The example rows that come with SWE servers: what their parts give, and nothing in the prompt that only the grader may know."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """The builder is a script's and no part of the package."""
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    yield
    sys.path.remove(str(REPOSITORY / "scripts"))


NAMES = ["swebench", "swebench_multilingual", "swebench_pro", "swe_gym", "r2e_gym", "scale_swe"]


def data_sets() -> dict[str, Any]:
    from task_builder.data_sets.every import DATA_SETS

    return {data_set.name: data_set for data_set in DATA_SETS}


def test_every_data_set_is_tested() -> None:
    assert sorted(data_sets()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_what_its_parts_give(name: str) -> None:
    data_set = data_sets()[name]
    rows = [json.loads(line) for line in data_set.path.read_bytes().splitlines()]
    assert len(rows) == 5
    assert rows == data_set.rows(), "python3 scripts/build_task_images.py --write-rows"
    schema = importlib.import_module(f"resources_servers.{Path(data_set.file).parts[1]}.task_data").TaskData
    for row in rows:
        schema.model_validate(row)


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_gives_nothing_away(name: str) -> None:
    data_set = data_sets()[name]
    for task, row in zip(data_set.tasks, data_set.rows(), strict=True):
        (message,) = row["responses_create_params"]["input"]
        prompt = message["content"]
        assert task.known["problem_statement"] in prompt
        assert data_set.image(task).workdir in prompt
        tests = task.known["FAIL_TO_PASS"]
        assert tests
        assert task.known["PASS_TO_PASS"]
        secrets = [task.patch("gold"), task.patch("test"), *task.test_files, *tests, *(test.rpartition("::")[2] for test in tests)]
        assert [secret for secret in secrets if secret in prompt] == []


def test_tasks_differ_in_kind() -> None:
    """A new file, several files, a binary file and one with CRLF, an id that the data set cuts, and two other languages are among them."""
    from task_builder.task import load

    assert "new file mode" in load("spans").patch("gold")
    assert load("notes").patch("gold").count("diff --git") == 3
    assert "GIT binary patch" in load("tables").patch("gold")
    assert "\r\n" in load("tables").patch("gold")
    cut = data_sets()["swebench"].rows()[1]["PASS_TO_PASS"]
    assert "tests/test_text.py::test_both_ways[-90--1" in json.loads(cut)
    assert {task.base_image for task in data_sets()["swebench_multilingual"].tasks} == {"c", "node"}
