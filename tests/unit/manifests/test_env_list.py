"""`gym env list` and `show`: from manifests, and from configs where there is none."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gym.cli import main as cli
from gym.config.roots import INSTALL_ROOT

if TYPE_CHECKING:
    from conftest import Recipe


@pytest.fixture
def listed(recipe: "Recipe", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Lists from the recipe's folder; gives entries by name, and what was said on stderr."""
    monkeypatch.chdir(recipe.root)
    monkeypatch.delenv("GYM_EXTRA_ROOTS", raising=False)

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        assert cli.run(["env", "list", "--json", *arguments]) == 0
        out, err = capsys.readouterr()
        return {entry["name"]: entry for entry in json.loads(out)}, err

    return run


def test_own_and_shipped_environments_are_listed(listed: Any, recipe: "Recipe") -> None:
    entries, err = listed()
    own = entries["weather/simple"]
    assert (own["status"], own["kind"], own["agent_server"]) == ("experimental", "benchmark", "simple_agent")
    assert (own["config"], own["manifest"]) == (str(recipe.config), str(recipe.manifest))
    assert [dataset["name"] for dataset in own["datasets"]] == ["weather", "example"]
    assert entries["swe_gym/swe_gym_opencode"]["resources_server"] == "swe_gym"  # data sets of the resources server
    assert entries["swe_gym/swe_gym_opencode_legacy_agent"]["lifecycle"] == "deprecated"  # and of the agent
    assert err == f"{len(entries)} environments\n"


def test_one_without_a_manifest_is_listed_by_its_config(listed: Any, recipe: "Recipe") -> None:
    recipe.manifest.unlink()
    own = listed()[0]["weather/simple"]
    assert (own["status"], own["manifest"], own["kind"], own["domain"]) == ("no-manifest", None, "benchmark", "agent")
    assert (own["agent_server"], own["description"]) == ("simple_agent", "Ask for the weather once")
    assert [dataset["name"] for dataset in own["datasets"]] == ["weather", "example"]


def test_one_with_a_broken_manifest_is_listed_as_such(listed: Any, recipe: "Recipe") -> None:
    recipe.replace(recipe.manifest, "domain: agent", "domain: nonsense")
    entries, err = listed()
    assert (entries["weather/simple"]["status"], entries["weather/simple"]["domain"]) == ("invalid-manifest", "agent")
    assert "manifests that cannot be read: 1; gym env validate --all says why" in err
    recipe.config.write_text("a: [")
    assert listed()[0]["weather/simple"]["status"] == "invalid-manifest"


def test_the_own_one_comes_before_the_shipped_one(listed: Any, recipe: "Recipe") -> None:
    shipped = Path("resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml")
    own = recipe.root / shipped
    own.parent.mkdir(parents=True)
    own.write_text((INSTALL_ROOT / shipped).read_text())
    (own.parent.parent / "app.py").write_text("")
    assert listed()[0]["example_single_tool_call/example_single_tool_call"]["config"] == str(own)


def test_a_choice(listed: Any) -> None:
    entries, _ = listed("--kind", "benchmark", "--domain", "agent")
    assert set(entries) == {"weather/simple"}


def test_as_a_table(listed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "list", "--domain", "agent"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    (line,) = [line for line in lines if line.startswith("weather/simple ")]
    columns = [part.strip() for part in line.split("  ") if part.strip()]
    assert columns == ["weather/simple", "benchmark", "experimental", "simple_agent", "weather, example", "Ask for the weather"]
    assert cli.run(["env", "list", "--domain", "none"]) == 0
    assert capsys.readouterr() == ("", "0 environments\n")


@pytest.mark.parametrize("name", ["weather/simple", "benchmarks/weather/simple.yaml"])
def test_showing_one(listed: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "show", name]) == 0
    said = capsys.readouterr().out
    assert "description: Ask for the weather\n" in said
    assert "- python benchmarks/weather/prepare.py\n" in said
    command = "gym eval run --config benchmarks/weather/simple.yaml --model-type openai_model --output results/simple.jsonl"
    assert f"- {command}\n" in said
    assert cli.run(["env", "show", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commands"][-1] == command


def test_showing_one_that_is_not_there(listed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "show", "weather/simpel"]) == 1
    assert capsys.readouterr() == ("", "there is no environment 'weather/simpel' — did you mean 'weather/simple'?\n")


def test_the_table_of_the_readme_is_up_to_date() -> None:
    script = INSTALL_ROOT / "scripts/update_env_list.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
