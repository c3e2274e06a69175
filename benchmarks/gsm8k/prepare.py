"""Makes the rows of GSM8K: 1,319 word problems whose answer is one number."""

import hashlib
from pathlib import Path
from typing import Any

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """A published row: `question`, and in `answer` the way there, `####` and the number. It has no id, so the question is made one."""
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(answer, str):
        raise ValueError("question and answer must be text")
    solution, found, number = answer.rpartition("####")
    if not found or not number.strip():
        raise ValueError("answer has no number after ####")
    return {
        "task_id": f"gsm8k-{hashlib.sha256(question.encode()).hexdigest()[:12]}",
        "question": question,
        "expected_answer": number.strip().replace(",", ""),
        "reference_solution": solution.strip(),
    }


RECIPE = Recipe(
    title="Make the rows of GSM8K.",
    hub=HubDataset("openai/gsm8k", "test", config="main"),
    output=Path("benchmarks/gsm8k/data/gsm8k_benchmark.jsonl"),
    template=Path("benchmarks/gsm8k/prompt.md"),
    server=Path("resources_servers/math_with_judge"),
    convert=convert,
    fixed={"split": "test"},
    statement="question",
)

if __name__ == "__main__":
    prepare_main(RECIPE)
