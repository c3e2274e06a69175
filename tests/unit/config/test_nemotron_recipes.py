"""The recipes of Nemotron 3.5 Super: all through the relay, with the model asked as for the published scores."""

import itertools
import json
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from gym.cli.main import app
from gym.config import load
from gym.config.plan import Plan
from gym.config.roots import INSTALL_ROOT
from gym.rollouts.batch import read_batch

SUPER = "nemotron_recipes/super-3.5"
SUITE = "benchmarks/nemotron_3.5_super"
RECIPES = {
    f"{SUPER}/swebench-verified.yaml": {"swebench_verified": "swebench_verified.jsonl"},
    f"{SUPER}/swebench-multilingual.yaml": {"swebench_multilingual": "swebench_multilingual.jsonl"},
    f"{SUPER}/swebench-pro.yaml": {"swebench_pro": "swebench_pro_benchmark.jsonl"},
    f"{SUITE}/swebench_verified_multilingual.yaml": {
        "swebench_verified": "swebench_verified.jsonl",
        "swebench_multilingual": "swebench_multilingual.jsonl",
    },
    f"{SUITE}/eval_container_config.yaml": {},
}
GIVEN = ["policy_base_url=http://127.0.0.1:1/v1", "policy_api_key=EMPTY", "policy_model_name=m"]


def plan_of(path: str, folder: Path, *overrides: str) -> Plan:
    return load([INSTALL_ROOT / path], list(overrides), model_type="vllm_model", roots=[INSTALL_ROOT], env={}, cwd=folder).plan


@pytest.mark.parametrize("path", RECIPES)
def test_it_validates_from_anywhere_once_its_rows_are_made(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in RECIPES[path].values():
        row = tmp_path / "benchmarks/swebench/data" / name
        row.parent.mkdir(parents=True, exist_ok=True)
        row.write_text(json.dumps({"instance_id": "stand-in"}) + "\n")
    said = CliRunner().invoke(app, ["env", "validate", "--config", path, "--model-type", "vllm_model", *GIVEN])
    *doubts, last = said.output.splitlines()
    assert (said.exit_code, last) == (0, "Config is valid")
    assert all("warning[deprecated]" in doubt for doubt in doubts)


@pytest.mark.parametrize("path", RECIPES)
def test_it_runs_through_the_relay(path: str, tmp_path: Path) -> None:
    plan = plan_of(path, tmp_path, *GIVEN)
    assert {(bound.dataset.name, bound.dataset.num_repeats) for bound in plan.datasets} == {(name, 3) for name in RECIPES[path]}
    agents = {i.implementation for i in plan.instances.values() if i.kind == "responses_api_agents"}
    environments = {i.implementation for i in plan.instances.values() if i.kind == "environment_servers"}
    assert (agents, environments) == ({"opencode_sandboxed_agent"}, {"legacy_agent"})


@pytest.mark.parametrize("path", [path for path in RECIPES if path.startswith(SUPER)])
def test_the_model_is_asked_as_for_the_published_scores(path: str, tmp_path: Path) -> None:
    model: Any = plan_of(path, tmp_path, *GIVEN).instances["policy_model"].config
    assert model.sampling_overrides == {"temperature": 1.0, "top_p": 0.95, "max_tokens": None, "max_completion_tokens": None}
    assert (model.chat_template_kwargs, model.context_overflow) == ({"enable_thinking": True}, "error")


def test_a_container_can_be_filled_before_the_endpoint_is_known(tmp_path: Path) -> None:
    assert set(plan_of(f"{SUITE}/eval_container_config.yaml", tmp_path).instances) >= {
        "swebench_verified_opencode_sandboxed_agent",
        "swebench_multilingual_opencode_sandboxed_agent",
        "policy_model",
    }


@pytest.mark.parametrize("path", sorted((INSTALL_ROOT / SUITE / "sglang_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_job_with_sglang_runs_what_is_there(path: Path) -> None:
    job = yaml.safe_load(path.read_text())
    benchmark = job["benchmark"]
    for name in ("GYM_CONFIG", "GYM_PREPARE"):
        assert (INSTALL_ROOT / benchmark["env"][name]).is_file()
    assert benchmark["env"]["GYM_CONFIG"].endswith("/opencode_legacy_agent.yaml")
    prefill, decode = (job["roles"][role]["args"] for role in ("prefill", "decode"))
    assert {args["served-model-name"] for args in (prefill, decode)} == {benchmark["env"]["POLICY_MODEL_NAME"]}
    assert (prefill["disaggregation-mode"], decode["disaggregation-mode"]) == ("prefill", "decode")
    for role in job["roles"].values():
        assert role["args"]["tp-size"] * role["workers"] == role["nodes"] * job["resources"]["gpus_per_node"]
    command = Template(benchmark["command"].partition("gym eval run")[2].replace("\\\n", " ")).safe_substitute(benchmark["env"])
    words = shlex.split(command)
    typer.main.get_command(app).commands["eval"].commands["run"].make_context("run", list(words))  # type: ignore[attr-defined]
    configs = [value for option, value in itertools.pairwise(words) if option == "--config"]
    assert configs == [benchmark["env"]["GYM_CONFIG"], f"{SUPER}/common.yaml"]


def test_the_batch_has_every_recipe() -> None:
    runs = read_batch(Path(f"{SUPER}/batch.yaml"), [])
    assert [run.config for run in runs] == [[path] for path in RECIPES if path.startswith(SUPER)]
    assert {run.name for run in runs} == {Path(path).stem for path in RECIPES if path.startswith(SUPER)}
