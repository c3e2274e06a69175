"""docs/write-a-swe-data-set.md is followed word for word on a real row, and its promise of size is counted."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.swe import dressed

if TYPE_CHECKING:
    from conftest import Reader

PAGE = "docs/write-a-swe-data-set.md"


def test_it_takes_a_hundred_lines(reader: "Callable[[str], Reader]") -> None:
    files = {name: text for name, text in reader(PAGE).files.items() if name.startswith("resources_servers/")}
    assert sorted(Path(name).name for name in files) == ["app.py", "config.py", "profile.py", "swe_rebench.yaml"]
    assert sum(len(text.splitlines()) for text in files.values()) <= 100


@pytest.fixture
def rebench_row(docker_engine: None) -> Iterator[dict[str, Any]]:
    """The real row, with an image that has the repository where SWE-rebench's have it."""
    row = dressed.published("tox-dev__pipdeptree-279")
    name = f"gym-test/rebench:{uuid.uuid4().hex}"
    recipe = f"FROM {row.pop('image')}\nRUN ln -s /testbed /pipdeptree\n"
    subprocess.run(["docker", "build", "-q", "-t", name, "-"], input=recipe, text=True, capture_output=True, check=True, timeout=120)
    yield {**row, "image_name": name}
    dressed.docker("rmi", "-f", name)


@pytest.mark.docker
@pytest.mark.slow
def test_a_reader_gets_a_data_set_that_says_yes_and_no(
    reader: "Callable[[str], Reader]", folder: Path, rebench_row: dict[str, Any]
) -> None:
    author = reader(PAGE)
    author.write_files()
    (folder / "rows.jsonl").write_text(json.dumps(rebench_row) + "\n")
    assert "Config is valid" in author.follow()
    gold, nothing = (json.loads((folder / f"results/{name}.jsonl").read_text()) for name in ("oracle", "noop"))
    assert (gold["reward"], gold["mask_sample"], gold["failed_required_tests"]) == (1.0, False, []), gold["test_output"]
    assert gold["test_exit_code"] == 1, "the sentinel was planted, and failed"
    assert (nothing["reward"], nothing["mask_sample"], nothing["evaluation_completed"]) == (0.0, False, True)
