"""Makes the rows of Scale-SWE: 20,181 issues of Python repositories, to train on."""

from pathlib import Path

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset

RECIPE = Recipe(
    title="Make the rows of Scale-SWE.",
    hub=HubDataset("AweAI-Team/Scale-SWE", "train"),
    output=Path("resources_servers/scale_swe/data/scale_swe_train.jsonl"),
    template=Path("benchmarks/swebench/prompt.md"),
    server=Path("resources_servers/scale_swe"),
    fixed={"dataset_name": "AweAI-Team/Scale-SWE", "split": "train"},
    prompt_fields={"workdir": lambda row: str(row["workdir"])},
)

if __name__ == "__main__":
    prepare_main(RECIPE)
