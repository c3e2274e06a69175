"""The rows of GSM8K, made from a file of published rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gym.tasks.rows import read_rows

REPOSITORY = Path(__file__).resolve().parents[3]
PUBLISHED = [
    {"question": "Two and two?", "answer": "Two and two are <<2+2=4>>4.\n#### 4"},
    {"question": "A thousand ones?", "answer": "1000 * 1\n#### 1,000"},
]


def prepare(folder: Path, rows: list[dict[str, Any]], code: int = 0) -> str:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        sys.executable,
        str(REPOSITORY / "benchmarks/gsm8k/prepare.py"),
        "--source",
        str(source),
        "--output",
        str(folder / "out.jsonl"),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_published_rows(tmp_path: Path) -> None:
    prepare(tmp_path, PUBLISHED)
    first, second = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["question"], first["expected_answer"], second["expected_answer"]) == ("Two and two?", "4", "1000")
    (prompt,) = first["responses_create_params"]["input"]
    assert prompt["content"].endswith("in \\boxed{}.\n\nTwo and two?")
    assert "2+2" not in prompt["content"]
    assert first["task_id"] != second["task_id"]


def test_a_row_without_a_number(tmp_path: Path) -> None:
    said = prepare(tmp_path, [*PUBLISHED, {"question": "?", "answer": "who knows"}], code=1)
    assert "row 3" in said
    assert "answer has no number after ####" in said
    assert not (tmp_path / "out.jsonl").exists()


def test_the_example_rows_have_the_prompt_of_the_others() -> None:
    head = (REPOSITORY / "benchmarks/gsm8k/prompt.md").read_text().partition("{question}")[0]
    for row in read_rows(REPOSITORY / "benchmarks/gsm8k/data/example.jsonl"):
        value: Any = row.value  # type: ignore[union-attr]
        assert value["responses_create_params"]["input"][0]["content"] == head + value["question"]
