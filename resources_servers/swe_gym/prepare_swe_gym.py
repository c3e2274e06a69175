"""Makes the rows of SWE-Gym: 2,438 issues of 11 Python repositories, to train on."""

from pathlib import Path

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset

RECIPE = Recipe(
    title="Make the rows of SWE-Gym.",
    hub=HubDataset("SWE-Gym/SWE-Gym", "train"),
    output=Path("resources_servers/swe_gym/data/swe_gym_train.jsonl"),
    template=Path("benchmarks/swebench/prompt.md"),
    server=Path("resources_servers/swe_gym"),
    fixed={"subset": "gym", "split": "train"},
    prompt_fields={"workdir": lambda row: "/testbed"},
)

if __name__ == "__main__":
    prepare_main(RECIPE)
