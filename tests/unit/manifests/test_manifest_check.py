"""What a manifest may say, and whether it agrees with its config; each problem is one line with its place."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gym.cli import main as cli
from gym.config.roots import INSTALL_ROOT
from gym.manifests.check import check_all, check_manifest
from gym.manifests.composition import examine_offline
from gym.manifests.places import overlay_of_manifest, overlays

if TYPE_CHECKING:
    from conftest import Recipe

HERE = "benchmarks/weather/simple/manifest.yaml"


def test_a_manifest_that_holds(recipe: "Recipe") -> None:
    checked = recipe.check()
    assert ([*checked.problems, *checked.stale], checked.holds) == ([], True)
    assert checked.composition is not None
    assert checked.composition.agent_server == "simple_agent"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "domain: agent",
            "domian: agent",
            "6:1: error[unknown-key]: domian: is not a key that is known here ('agent') — did you mean 'domain'?",
        ),
        ("domain: agent\n", "", "1:1: error[missing-key]: domain: is required — add domain: …"),
        (
            "domain: agent",
            "domain: agents",
            "6:1: error[wrong-value]: domain: is none of the values allowed here ('agents') — did you mean 'agent'?",
        ),
        ("[0, 1]", "[1, 0]", "14:10: error[wrong-value]: reward.range: the first number must be less than the second (1, 0)"),
        ("- Grace", "- Ada", "11:1: error[wrong-value]: authors: an author is named twice"),
        (
            "num_repeats: 3",
            "num_repeats: many",
            "27:3: error[wrong-value]: datasets[0].num_repeats: is not a whole number ('many') — write a whole number",
        ),
        ("modality: text", "modality: [", "11:1: error[yaml-syntax]"),
        ("0.1.0", "0.1", "3:1: error[wrong-value]: version: is not text (0.1) — write it in quotes"),
        (
            "weather/simple\n",
            "weather\n",
            "2:1: error[name-differs]: name: differs from what its path says ('weather') — write weather/simple",
        ),
        (
            "../simple.yaml",
            "../simpel.yaml",
            "15:1: error[file-missing]: config_path: there is no such config ('../simpel.yaml') — did you mean '../simple.yaml'?",
        ),
        ("../simple.yaml", "../../../resources.yaml", "15:1: error[file-missing]: config_path"),
        ("domain: agent", "domain: math", "6:1: error[domain-differs]: domain: differs from the config (math here, agent there)"),
        ("canonical_split: test\n", "", "1:1: error[missing-key]: canonical_split: is required"),
        ("prepared", "template", "1:1: error[missing-key]: standard_prompt_config: is required"),
        (
            "prepared",
            "prepared\nstandard_prompt_config: p.yaml",
            "error[wrong-value]: standard_prompt_config: there is no template where prompt_source is prepared — remove it",
        ),
        (
            "prepared",
            "template\nstandard_prompt_config: p.yaml",
            "error[file-missing]: standard_prompt_config: there is no such file ('p.yaml')",
        ),
        (
            "kind: benchmark",
            "kind: environment",
            "4:1: error[wrong-value]: kind: is environment, and its data sets hold a benchmark — write benchmark",
        ),
        ("{name: example,", "{name: weather,", "31:4: error[wrong-value]: datasets[1].name: is there twice (weather)"),
        (
            '"Apache-2.0"',
            '"Apache2.0"',
            "10:1: warning[unknown-license]: licensing: is not the name of a known licence ('Apache2.0') — did you mean 'Apache-2.0'?",
        ),
        (
            "agent_server: simple_agent",
            "agent_server: other_agent",
            "17:1: error[stale]: agent_server: differs from the config ('other_agent' here, 'simple_agent' there)",
        ),
        (
            "agent_server: simple_agent\n",
            "",
            "1:1: error[stale]: agent_server: differs from the config (nothing here, 'simple_agent' there)",
        ),
        ("num_repeats: 3", "num_repeats: 1", "27:3: error[stale]: datasets[0].num_repeats: differs from the config (1 here, 3 there)"),
        (
            "- name: weather\n",
            "- name: rain\n",
            "19:1: error[stale]: datasets: differs from the config ('rain, example' here, 'weather, example' there)",
        ),
    ],
)
def test_what_is_wrong_with_one(recipe: "Recipe", old: str, new: str, said: str) -> None:
    problems = recipe.wrong(old, new)
    assert any(said in problem for problem in problems), "\n".join(problems)
    assert all(problem.startswith(f"{HERE}:") for problem in problems)


@pytest.mark.parametrize("licensing", ["MIT OR Apache-2.0", "CECILL-2.1", "internal", "proprietary", "unknown"])
def test_known_licences(recipe: "Recipe", licensing: str) -> None:
    assert recipe.wrong('"Apache-2.0"', licensing) == []


def test_one_that_stands_beside_another_config(recipe: "Recipe") -> None:
    (recipe.config.parent / "other.yaml").write_text("")
    (problem,) = recipe.wrong("../simple.yaml", "../other.yaml")
    assert "error[manifest-place]: config_path: is another config than the one that this manifest stands beside" in problem


def test_a_config_that_is_wrong_is_reported_where_it_is(recipe: "Recipe") -> None:
    recipe.replace(recipe.config, "type: benchmark", "type: benchmork")
    checked = recipe.check()
    assert [problem.rule for problem in checked.problems] == ["wrong-value"]
    assert str(checked.problems[0].origin) == f"{recipe.config}:6:25"
    assert checked.composition is None


def test_local_settings_and_the_environment_do_not_matter(recipe: "Recipe", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.root)
    (recipe.root / "env.yaml").write_text("nonsense: 1\npolicy_model: {responses_api_models: {openai_model: {}}}\n")
    assert recipe.check().problems == []


def test_several_environments_make_a_list(recipe: "Recipe") -> None:
    with recipe.config.open("a") as file:
        file.write("""
second_agent: {responses_api_agents: {noop_agent: {}}}
second_environment:
  environment_servers:
    single_agent_turn:
      resources_server: {type: resources_servers, name: example_single_tool_call_resources_server}
      agent_server: {type: responses_api_agents, name: second_agent}
environment_server_routes: {weather: second_environment, example_single_tool_call: second_environment}
""")
    (problem,) = recipe.check().stale
    assert "agent_server: differs from the config ('simple_agent' here, 'simple_agent, noop_agent' there)" in str(problem)
    assert recipe.wrong("agent_server: simple_agent", "agent_server: [simple_agent, noop_agent]") == []


def test_the_command_line(recipe: "Recipe", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(recipe.root)
    assert cli.run(["env", "validate", "--manifest", HERE]) == 0
    assert capsys.readouterr().out == "Manifest is valid\n"
    recipe.replace(recipe.manifest, "simple_agent", "other_agent")
    assert cli.run(["env", "validate", "--manifest", HERE, "--format", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["valid"], [(entry["file"], entry["line"], entry["rule"]) for entry in said["problems"]]) == (False, [(HERE, 17, "stale")])
    assert cli.run(["env", "validate", "--manifest", "benchmarks/weather/simple.yaml"]) == 1
    assert "error[manifest-place]: manifests do not stand here" in capsys.readouterr().err
    assert cli.run(["env", "validate", "--manifest", "benchmarks/none/manifest.yaml"]) == 1
    assert (
        "benchmarks/none/manifest.yaml:1:1: error[file-unreadable]: cannot be read (No such file or directory)" in capsys.readouterr().err
    )


@pytest.mark.parametrize("arguments", [("--sync",), ("--all", "--manifest", HERE), ("--all", "a=b"), ("--manifest", HERE, "-c", "x.yaml")])
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["env", "validate", *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_all_finds_what_lacks_a_manifest_and_what_stands_where_none_belongs(recipe: "Recipe") -> None:
    (recipe.config.parent / "bare.yaml").write_text(recipe.config.read_text())
    (recipe.config.parent / "prompt.yaml").write_text("user: a prompt and no config\n")
    stray = recipe.root / "benchmarks/weather/gone/manifest.yaml"
    stray.parent.mkdir()
    stray.write_text(recipe.manifest.read_text())
    checked, problems, bare = check_all([recipe.root], recipe.root)
    assert ([one.path for one in checked], bare) == ([recipe.manifest, stray], 1)
    assert [str(problem).split(" — ")[0] for problem in problems] == [
        "benchmarks/weather/bare.yaml:1:1: warning[no-manifest]: declares data sets and has no manifest"
    ]


def test_who_uses_a_deprecated_config_is_told(
    recipe: "Recipe", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recipe.root)
    use = ["env", "validate", "--config", "benchmarks/weather/simple.yaml", "--model-type", "scripted_model"]
    assert cli.run(use) == 0
    assert "[deprecated]" not in capsys.readouterr().err
    recipe.manifest.write_text(recipe.manifest.read_text() + "lifecycle: deprecated\n")
    assert cli.run(use) == 0
    warning = "benchmarks/weather/simple.yaml:1:1: warning[deprecated]: config_paths: benchmarks/weather/simple.yaml is deprecated"
    assert warning in capsys.readouterr().err
    assert recipe.check().problems == []  # which is no fault of the manifest
    assert cli.run(["eval", "run", *use[2:], "--dataset", "example", "--limit", "1", "--output", "out.jsonl"]) == 0
    assert warning in capsys.readouterr().err


def test_all_reports_broken_configs_and_passes_over_yaml_that_is_none(recipe: "Recipe") -> None:
    folder = recipe.config.parent
    (folder / "several.yaml").write_text("one: 1\n---\ntwo: 2\n")
    (folder / "chart.yaml").write_text("name: {{ .Values.name }}-x\n")
    (folder / "broken.yaml").write_text("config_paths: [\n")
    (folder / "latin.yaml").write_bytes(b"# \xe9\nx: {resources_servers: {}}\n")
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    _, problems, _ = check_all([recipe.root], recipe.root)
    assert {(str(problem.origin).rpartition("/")[2], problem.rule) for problem in problems} == {
        ("broken.yaml:2:1", "yaml-syntax"),
        ("latin.yaml:1:1", "file-unreadable"),
        ("command line", "config-not-found"),  # a link that leads nowhere
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("benchmarks/swebench/verified/opencode/manifest.yaml", "swebench/verified/opencode"),
        ("resources_servers/swe_gym/configs/swe_gym_opencode/manifest.yaml", "swe_gym/swe_gym_opencode"),
        ("nemotron_recipes/super-3.5/verified/manifest.yaml", "nemotron_recipes/super-3.5/verified"),
        ("elsewhere/verified/manifest.yaml", None),
        ("benchmarks/swebench/verified/opencode/manifest.yml", None),
    ],
)
def test_names(path: str, name: str | None, tmp_path: Path) -> None:
    overlay = overlay_of_manifest(tmp_path / path)
    assert (overlay.name if overlay is not None else None) == name
    assert overlay is None or overlay.manifest == tmp_path / path


def test_every_shipped_environment_has_a_manifest_that_holds() -> None:
    checked, problems, _ = check_all([INSTALL_ROOT], INSTALL_ROOT)
    assert [str(problem) for one in checked for problem in (*one.problems, *one.stale)] == []
    assert [str(problem) for problem in problems] == []
    for overlay in overlays([INSTALL_ROOT]):  # what composes by itself; other files are laid over a config
        if overlay.relative.parts[0] == "resources_servers" and examine_offline(overlay).plan is not None:
            assert overlay.manifest.is_file()


def test_what_goes_through_the_relay_is_deprecated_and_nothing_else() -> None:
    checked, _, _ = check_all([INSTALL_ROOT], INSTALL_ROOT)
    manifests = [one.manifest for one in checked if one.manifest is not None]
    deprecated = {manifest.name for manifest in manifests if manifest.lifecycle == "deprecated"}
    assert deprecated == {manifest.name for manifest in manifests if manifest.agent_server == "opencode_sandboxed_agent"}


def test_the_only_config_of_a_folder_has_its_manifest_beside_it(recipe: "Recipe") -> None:
    only = recipe.config.with_name("config.yaml")
    recipe.config.rename(only)
    text = recipe.manifest.read_text().replace("weather/simple", "weather").replace("../simple.yaml", "config.yaml")
    beside = only.with_name("manifest.yaml")
    beside.write_text(text)
    checked = check_manifest(beside, recipe.root)
    assert ([*checked.problems, *checked.stale], checked.holds) == ([], True)
    (overlay,) = overlays([recipe.root])
    assert (overlay.name, overlay.manifest, overlay.config_path) == ("weather", beside, "config.yaml")


def test_all_imports_no_app_and_is_quick(tmp_path: Path) -> None:
    code = (
        "import sys, time; from gym.cli.main import run; code = run(['env', 'validate', '--all']); used = time.process_time()\n"
        "apps = [name for name in sys.modules if name.endswith('.app') or name in ('aiohttp', 'starlette', 'uvicorn', 'docker')]\n"
        "print(code, apps, used < 3)"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith("GYM_")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, text=True, capture_output=True, check=False, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["0 [] True"], done.stdout + done.stderr
