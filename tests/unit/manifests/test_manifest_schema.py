"""The JSON Schema of manifests: it is one, it takes what we take, and refuses what we refuse."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gym.cli import main as cli
from gym.config.roots import INSTALL_ROOT
from gym.manifests.places import overlays
from gym.manifests.schema import json_schema

MANIFESTS = [overlay.manifest for overlay in overlays([INSTALL_ROOT]) if overlay.manifest.is_file()]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
GOOD: dict[str, Any] = yaml.safe_load((INSTALL_ROOT / "benchmarks/swebench/verified/opencode/manifest.yaml").read_text())


def test_it_is_a_schema_and_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert cli.run(["env", "schema", "manifest"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json_schema()
    assert (INSTALL_ROOT / "docs/environment-manifest.schema.json").read_text() == printed


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(INSTALL_ROOT).parent))
def test_shipped_manifests_fit(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"nonsense": 1},
        {"name": None},
        {"kind": "benchmarks"},
        {"domain": "chess"},
        {"authors": []},
        {"reward": {"range": [0], "higher_is_better": True}},
        {"canonical_split": ...},
        {"prompt_source": "template"},
        {"prompt_source": ...},
        {"standard_prompt_config": "p.yaml"},
        {"datasets": [{"name": "x", "type": "example"}]},
        {"agent_server": ["one"]},
        {"adopted_from": {"source": "x", "ref": "y", "reconciled": "yesterday"}},
    ],
)
def test_what_it_refuses(change: dict[str, Any]) -> None:
    manifest = {key: value for key, value in (deepcopy(GOOD) | change).items() if value is not ...}
    assert list(VALIDATOR.iter_errors(manifest))


def test_every_field_has_its_meaning_but_those_that_mirror() -> None:
    properties = json_schema()["properties"]
    plain = {"kind", "domain", "description", "authors", "reward", "datasets", "state", "adopted_from", "lifecycle"}
    assert {name for name, field in properties.items() if "description" not in field and "$ref" not in field} <= plain
