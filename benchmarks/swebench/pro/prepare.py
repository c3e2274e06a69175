"""Makes the rows of SWE-bench Pro: 731 issues, each with a script that runs its tests and a parser that reads them.

The published rows have neither: both come from the evaluator's repository, of which a checkout is given.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from gym.config.errors import UserError
from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset

EVALUATOR = "https://github.com/scaleapi/SWE-bench_Pro-os"
EVALUATOR_COMMIT = "ca10a60a5fcae51e6948ffe1485d4153d421e6c5"
DATASET_REVISION = "7ab5114912baf22bb098818e604c02fe7ad2c11f"

FILES = {
    "run_script": "run_scripts/{id}/run_script.sh",
    "parser_script": "run_scripts/{id}/parser.py",
    "base_dockerfile": "dockerfiles/base_dockerfile/{id}/Dockerfile",
    "instance_dockerfile": "dockerfiles/instance_dockerfile/{id}/Dockerfile",
}
"""Field of the row -> file of the evaluator's repository."""


def options(parser: argparse.ArgumentParser) -> None:
    """The one option of this data set."""
    parser.add_argument(
        "--evaluator",
        type=Path,
        metavar="DIR",
        help=f"a checkout of {EVALUATOR} at {EVALUATOR_COMMIT[:12]}; needed unless the rows carry {', '.join(FILES)}",
    )


def finish(recipe: Recipe, chosen: argparse.Namespace) -> Recipe:
    """The recipe with the evaluator's files."""
    folder: Path | None = chosen.evaluator
    if folder is not None and not (folder / "run_scripts").is_dir():
        raise UserError(f"--evaluator {folder}: there is no folder run_scripts in it: give a checkout of {EVALUATOR}")

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, **{name: _file(folder, row, name) for name in FILES if not isinstance(row.get(name), str)}}

    return replace(recipe, convert=convert)


def _file(folder: Path | None, row: dict[str, Any], name: str) -> str:
    if folder is None:
        raise ValueError(f"the row has no {name}: give a checkout of the evaluator with --evaluator (git clone {EVALUATOR})")
    path = folder / FILES[name].format(id=row.get("instance_id"))
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{name}: {path}: {error.strerror or error}") from error


RECIPE = Recipe(
    title="Make the rows of SWE-bench Pro.",
    hub=HubDataset("ScaleAI/SWE-bench_Pro", "test", DATASET_REVISION),
    output=Path("benchmarks/swebench/data/swebench_pro_benchmark.jsonl"),
    template=Path("benchmarks/swebench/pro/prompt.md"),
    server=Path("resources_servers/swebench_pro"),
    fixed={"subset": "pro", "split": "test", "evaluator_commit": EVALUATOR_COMMIT, "dataset_revision": DATASET_REVISION},
    prompt_fields={
        "requirements": lambda row: str(row.get("requirements") or "none"),
        "interface": lambda row: str(row.get("interface") or "none"),
    },
)

if __name__ == "__main__":
    prepare_main(RECIPE, options=options, finish=finish)
