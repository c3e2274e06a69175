"""Makes the rows of SWE-bench Verified: 500 issues of Python repositories."""

from pathlib import Path

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset

RECIPE = Recipe(
    title="Make the rows of SWE-bench Verified.",
    hub=HubDataset("princeton-nlp/SWE-bench_Verified", "test"),
    output=Path("benchmarks/swebench/data/swebench_verified.jsonl"),
    template=Path("benchmarks/swebench/prompt.md"),
    server=Path("resources_servers/swebench"),
    fixed={"subset": "verified", "split": "test"},
    prompt_fields={"workdir": lambda row: "/testbed"},
)

if __name__ == "__main__":
    prepare_main(RECIPE)
