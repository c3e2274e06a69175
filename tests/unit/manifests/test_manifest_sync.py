"""`--sync` changes what mirrors the config, and no other byte."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gym.cli import main as cli
from gym.manifests.edits import CannotEdit, edit
from gym.manifests.schema import Manifest

if TYPE_CHECKING:
    from conftest import Recipe


def test_one_that_agrees_is_not_touched(recipe: "Recipe") -> None:
    before = (recipe.manifest.stat().st_mtime_ns, recipe.manifest.stat().st_ino)
    assert recipe.sync()[0] is False
    assert (recipe.manifest.stat().st_mtime_ns, recipe.manifest.stat().st_ino) == before


@pytest.mark.parametrize(
    ("old", "new", "stale", "synced"),
    [
        ("num_repeats: 3,", "num_repeats: 5,", "num_repeats: 3   # as is usual", "num_repeats: 5   # as is usual"),
        ("num_repeats: 3,", "", "num_repeats: 3   # as is usual", "num_repeats: 1   # as is usual"),
        (", license: MIT}", "}", "license: MIT", "license: null"),
        (", license: MIT}", ", license: 'TBD'}", "license: MIT", "license: TBD"),
        ("taskset: weather,", "taskset: 'yes',", "taskset: weather", "taskset: 'yes'"),
        (
            "- name: example\n        type: example",
            "- name: example\n        type: example\n        num_repeats: 2\n        license: CC0-1.0",
            "data/example.jsonl}",
            "data/example.jsonl, num_repeats: 2, license: CC0-1.0}",
        ),
    ],
)
def test_a_change_of_the_config(recipe: "Recipe", old: str, new: str, stale: str, synced: str) -> None:
    before = recipe.manifest.read_text()
    recipe.replace(recipe.config, old, new)
    changed, checked = recipe.sync()
    assert (changed, checked.problems, checked.stale) == (True, [], [])
    assert recipe.manifest.read_text() == before.replace(stale, synced)
    assert [*recipe.check().problems, *recipe.check().stale] == []
    assert list(recipe.manifest.parent.iterdir()) == [recipe.manifest]


def test_fields_that_are_missing_are_put_in_their_place(recipe: "Recipe") -> None:
    before = recipe.manifest.read_text()
    for gone in ("agent_server: simple_agent\n", "model_server: policy_model\n"):
        recipe.replace(recipe.manifest, gone, "")
    assert recipe.sync()[0]
    assert recipe.manifest.read_text() == before


def test_data_sets_come_and_go_and_comments_stay(recipe: "Recipe") -> None:
    text = recipe.manifest.read_text()
    config = recipe.config.read_text()
    at = config.index("      - {name: weather")
    recipe.config.write_text(
        config[:at]
        + "      - {name: new, type: benchmark, taskset: n, jsonl_fpath: n.jsonl, prepare_script: benchmarks/weather/prepare.py}\n"
        + config[at:]
    )
    assert recipe.sync()[0]
    added = "- name: new\n  type: benchmark\n  taskset: n\n  jsonl_fpath: n.jsonl\n  prepare_script: benchmarks/weather/prepare.py\n"
    assert recipe.manifest.read_text() == text.replace("- name: weather\n", f"{added}- name: weather\n")
    recipe.config.write_text(config)
    assert recipe.sync()[0]
    assert recipe.manifest.read_text() == text


def test_nothing_is_written_while_anything_else_is_wrong(recipe: "Recipe", capsys: pytest.CaptureFixture[str]) -> None:
    recipe.replace(recipe.config, "num_repeats: 3", "num_repeats: 4")
    recipe.replace(recipe.manifest, "name: weather/simple", "name: weather")
    before = recipe.manifest.read_bytes()
    assert cli.run(["env", "validate", "--manifest", str(recipe.manifest), "--sync"]) == 1
    assert recipe.manifest.read_bytes() == before
    assert "error[name-differs]" in capsys.readouterr().err


def test_the_command_line_says_what_it_rewrote(recipe: "Recipe", capsys: pytest.CaptureFixture[str]) -> None:
    recipe.replace(recipe.config, "num_repeats: 3", "num_repeats: 4")
    assert cli.run(["env", "validate", "--manifest", str(recipe.manifest), "--sync"]) == 0
    assert capsys.readouterr() == ("Manifest is valid\n", f"updated {recipe.manifest}\n")


def test_line_ends_and_permissions_are_kept(recipe: "Recipe") -> None:
    recipe.manifest.write_bytes(recipe.manifest.read_bytes().replace(b"\n", b"\r\n").replace(b"agent_server: simple_agent\r\n", b""))
    recipe.manifest.chmod(0o640)
    assert recipe.sync()[0]
    assert recipe.manifest.read_bytes().count(b"\n") == recipe.manifest.read_bytes().count(b"\r\n")
    assert recipe.manifest.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_changed_in_place_is_left_alone(recipe: "Recipe") -> None:
    recipe.replace(recipe.manifest, "resources_server: example_single_tool_call", "resources_server: &name example_single_tool_call")
    recipe.replace(recipe.manifest, "agent_server: simple_agent", "agent_server: *name")
    before = recipe.manifest.read_bytes()
    changed, checked = recipe.sync()
    assert (changed, recipe.manifest.read_bytes()) == (False, before)
    assert "cannot be rewritten in place: agent_server is an alias (*name) of something written elsewhere — correct it by hand" in str(
        checked.problems[0]
    )


def test_a_disk_that_is_full_leaves_the_old_file(recipe: "Recipe", monkeypatch: pytest.MonkeyPatch) -> None:
    recipe.replace(recipe.config, "num_repeats: 3", "num_repeats: 4")
    before = recipe.manifest.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        recipe.sync()
    assert (recipe.manifest.read_bytes(), list(recipe.manifest.parent.iterdir())) == (before, [recipe.manifest])


@pytest.mark.parametrize(
    ("text", "changes", "edited"),
    [
        ("a: 1\n", {"sandbox": "docker"}, "a: 1\nsandbox: docker\n"),
        ("a: 1", {"sandbox": "docker", "model_server": "m"}, "a: 1\nmodel_server: m\nsandbox: docker"),
        ("{a: 1}\n", {"sandbox": "docker"}, "{a: 1, sandbox: docker}\n"),
        ("sandbox:  # none\nb: 2\n", {"sandbox": "docker"}, "sandbox: docker  # none\nb: 2\n"),
        ("sandbox: >-\n  docker\n\nb: 2\n", {"sandbox": "local"}, "sandbox: local\n\nb: 2\n"),
        ("sandbox: docker # x\n", {"sandbox": ["docker", "local"]}, "sandbox: [docker, local] # x\n"),
        ("sandbox:  # x\n- docker\n- local\nb: 2\n", {"sandbox": "local"}, "sandbox: local  # x\nb: 2\n"),
        ("datasets: []  # none\nb: 2\n", {"datasets": [{"name": "n", "type": "x"}]}, "datasets:  # none\n- name: n\n  type: x\nb: 2\n"),
        ("datasets:  # x\n  - name: n\n    type: x\nb: 2\n", {"datasets": []}, "datasets: []  # x\nb: 2\n"),
        ("datasets: [{name: n, type: x}]\n", {"datasets": [{"name": "n", "type": "y", "license": "MIT"}]},
         "datasets: [{name: n, type: y, license: MIT}]\n"),
        (
            "datasets:\n  # one\n  - name: a\n\n  # two\n  - name: b # bee\n# end\n",
            {"datasets": [{"name": "b", "type": "x"}, {"name": "a", "type": None}]},
            "datasets:\n  # one\n\n  # two\n  - name: b # bee\n    type: x\n  - name: a\n# end\n",
        ),
    ],
)  # fmt: skip
def test_edits(text: str, changes: dict[str, Any], edited: str) -> None:
    assert edit(text, changes, ["a", *Manifest.model_fields]) == edited


@pytest.mark.parametrize("text", ["- a\n", "datasets:\n- # mine\n  x: 1\n", "datasets: [  # mine\n  {name: b}]\n"])
def test_edits_that_are_refused(text: str) -> None:
    with pytest.raises(CannotEdit):
        edit(text, {"datasets": [{"name": "a"}]}, ["datasets"])


_NAME = st.sampled_from("abcd")
_DATASETS = st.lists(
    st.fixed_dictionaries({"name": _NAME, "type": st.sampled_from(["x", "y"]), "num_repeats": st.integers(1, 3)}),
    unique_by=lambda entry: entry["name"],
)


@settings(max_examples=50, deadline=None)
@given(_DATASETS, _DATASETS, st.sampled_from([None, True, False]), st.sampled_from(["\n", "\r\n"]))
def test_whatever_the_lists_the_text_says_the_new_one_and_keeps_every_comment(
    before: Any, after: Any, flow: bool | None, newline: str
) -> None:
    written = yaml.safe_dump({"a": 1, "datasets": before, "z": 1}, sort_keys=False, default_flow_style=flow)
    lines = [f"{line}  # {index}" for index, line in enumerate(written.splitlines())] if flow is False else written.splitlines()
    text = newline.join(lines) + newline
    edited = edit(text, {"datasets": after}, ["a", "datasets", "z"])
    said = [{"num_repeats": 1, **entry} for entry in yaml.safe_load(edited)["datasets"]]
    assert said == after
    assert yaml.safe_load(edited) == {"a": 1, "datasets": yaml.safe_load(edited)["datasets"], "z": 1}
    assert edit(edited, {"datasets": after}, ["a", "datasets", "z"]) == edited


def test_a_link_is_followed(recipe: "Recipe", tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    recipe.manifest.rename(real)
    recipe.manifest.symlink_to(real)
    recipe.replace(recipe.config, "num_repeats: 3", "num_repeats: 4")
    assert recipe.sync()[0]
    assert recipe.manifest.is_symlink()
    assert "num_repeats: 4" in real.read_text()
