"""docs/write-an-environment.md is followed word for word, and its promise of size is counted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Reader

PAGE = "docs/write-an-environment.md"
PART_OF_THE_ENVIRONMENT = "resources_servers/"
"""What stands beside it on the page plays the model, and would not be shipped."""


def test_it_takes_three_files_and_eighty_lines(reader: "Callable[[str], Reader]") -> None:
    files = {name: text for name, text in reader(PAGE).files.items() if name.startswith(PART_OF_THE_ENVIRONMENT)}
    assert sorted(Path(name).suffix for name in files) == [".jsonl", ".py", ".yaml"]
    assert sum(len(text.splitlines()) for text in files.values()) <= 80


def test_a_reader_gets_an_environment_that_says_yes_and_no(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    assert "Config is valid" in author.follow()
    right, wrong = (json.loads((folder / f"results/{name}.jsonl").read_text()) for name in ("right", "wrong"))
    assert (right["reward"], right["guesses"], right["mask_sample"]) == (1.0, 2, False)
    assert (wrong["reward"], wrong["guesses"], wrong["mask_sample"]) == (0.0, 2, False)
    assert right["_ng_task_id"] == {"taskset": "guess_number", "task_id": "seven"}


def test_it_can_lie_elsewhere(reader: "Callable[[str], Reader]", folder: Path, tmp_path: Path) -> None:
    author = reader(PAGE)
    author.write_files(below=tmp_path / "extra")
    (folder / "right.yaml").write_text(author.files["right.yaml"])
    done = author.run(author.commands[0], GYM_EXTRA_ROOTS=str(tmp_path / "extra"))
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "results/right.jsonl").read_text())["reward"] == 1.0


def test_the_number_of_guesses_is_kept(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    rows = folder / "resources_servers/guess_number/data/example.jsonl"
    rows.write_text(json.dumps({**json.loads(rows.read_text()), "max_guesses": 1}) + "\n")
    assert author.run(author.commands[0]).returncode == 0
    result = json.loads((folder / "results/right.jsonl").read_text())
    assert (result["reward"], result["guesses"]) == (0.0, 1)


def test_a_row_that_is_no_task_fails_by_name(reader: "Callable[[str], Reader]", folder: Path) -> None:
    author = reader(PAGE)
    author.write_files()
    rows = folder / "resources_servers/guess_number/data/example.jsonl"
    rows.write_text(json.dumps({**json.loads(rows.read_text()), "secret": "many"}) + "\n")
    done = author.run(author.commands[0])
    assert done.returncode == 76
    assert "Traceback" not in done.stderr
    failure = json.loads((folder / "results/right_failures.jsonl").read_text())
    assert "secret" in failure["_ng_failure_message"]
    assert failure["_ng_failure_terminal"] is True
