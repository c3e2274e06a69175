"""A folder with one recipe and its manifest, made of shipped servers."""

from pathlib import Path

import pytest

from gym.manifests.check import Checked, check_manifest
from gym.manifests.sync import sync

RECIPE = """\
config_paths: [resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml]
example_single_tool_call_resources_server:
  resources_servers:
    example_single_tool_call:
      datasets:
      - {name: weather, type: benchmark, taskset: weather, jsonl_fpath: benchmarks/weather/data.jsonl,
         prepare_script: benchmarks/weather/prepare.py, num_repeats: 3, license: MIT}
      - name: example
        type: example
        taskset: example_single_tool_call
        jsonl_fpath: resources_servers/example_single_tool_call/data/example.jsonl
"""
MANIFEST = """\
# Said of the weather.
name: weather/simple
version: 0.1.0
kind: benchmark   # it is one
integration_profile: custom-gym-verifier
domain: agent
description: Ask for the weather

modality: text
licensing: "Apache-2.0"
authors:
- Ada   # the first
- Grace
reward: {range: [0, 1], higher_is_better: true}
config_path: ../simple.yaml
resources_server: example_single_tool_call   # as the folder
agent_server: simple_agent
model_server: policy_model
datasets:
# The benchmark itself.
- name: weather
  type: benchmark
  # Its tasks.
  taskset: weather
  jsonl_fpath: benchmarks/weather/data.jsonl
  prepare_script: benchmarks/weather/prepare.py
  num_repeats: 3   # as is usual
  license: MIT

# To try it.
- {name: example, type: example, taskset: example_single_tool_call,
   jsonl_fpath: resources_servers/example_single_tool_call/data/example.jsonl}
# After all of them.
canonical_split: test
prompt_source: prepared
"""


class Recipe:
    """`benchmarks/weather/simple.yaml` and its manifest, below a root of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "benchmarks/weather/simple.yaml"
        self.manifest = root / "benchmarks/weather/simple/manifest.yaml"
        self.manifest.parent.mkdir(parents=True)
        self.config.write_text(RECIPE)
        self.manifest.write_text(MANIFEST)
        (root / "benchmarks/weather/prepare.py").write_text("")

    def replace(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def check(self) -> Checked:
        return check_manifest(self.manifest, self.root)

    def wrong(self, old: str, new: str) -> list[str]:
        """The problems of the manifest with one piece replaced."""
        self.manifest.write_text(MANIFEST)
        self.replace(self.manifest, old, new)
        checked = self.check()
        return [str(problem) for problem in (*checked.problems, *checked.stale)]

    def sync(self) -> tuple[bool, Checked]:
        checked = self.check()
        return sync(checked), checked


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return Recipe(tmp_path / "root")
