"""docs/manifests.md says what the schema says, and its example holds."""

import re
from pathlib import Path

import yaml

from gym.manifests.schema import MIRRORED, Manifest, ManifestDataset

PAGE = (Path(__file__).resolve().parents[2] / "docs/manifests.md").read_text()


def test_the_fields_are_those_of_the_schema() -> None:
    table = PAGE.partition("<!-- manifest fields")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| `")]
    told = {name: cells[1] for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}
    assert list(told) == list(Manifest.model_fields)
    assert [name for name, required in told.items() if required == "yes"] == [
        name for name, field in Manifest.model_fields.items() if field.is_required()
    ]
    assert [name for name, required in told.items() if required == "mirrored"] == list(MIRRORED)
    (datasets,) = [cells[2] for cells in rows if cells[0] == "`datasets`"]
    assert re.findall(r"`(\w+)`", datasets) == list(ManifestDataset.model_fields)


def test_the_example_is_a_manifest() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Manifest.model_validate(yaml.safe_load(example))
