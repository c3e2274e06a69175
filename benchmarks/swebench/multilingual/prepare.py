"""Makes the rows of SWE-bench Multilingual: 300 issues of repositories in nine languages."""

import json
from pathlib import Path
from typing import Any

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """The row in the form of SWE-bench Verified, which has its tests as JSON strings and two more fields."""
    lists = {name: json.dumps(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS") if isinstance(row.get(name), list)}
    return {"environment_setup_commit": "", "difficulty": "", **row, **lists}


RECIPE = Recipe(
    title="Make the rows of SWE-bench Multilingual.",
    hub=HubDataset("SWE-bench/SWE-bench_Multilingual", "test"),
    output=Path("benchmarks/swebench/data/swebench_multilingual.jsonl"),
    template=Path("benchmarks/swebench/prompt.md"),
    server=Path("resources_servers/swebench"),
    convert=convert,
    fixed={"subset": "multilingual", "split": "test"},
    prompt_fields={"workdir": lambda row: "/testbed"},
)

if __name__ == "__main__":
    prepare_main(RECIPE)
