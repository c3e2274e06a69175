"""The hooks and the workflow that docs/continuous-integration.md offers, run as they are written there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PAGE = REPOSITORY / "docs" / "continuous-integration.md"
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for hook in yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())}
EXAMPLES: list[dict[Any, Any]] = [
    yaml.safe_load(body) for body in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
]
pytestmark = pytest.mark.slow

CONFIG = "resources_servers/mine/configs/mine.yaml"


class Clone:
    """A user's git repository with a server and a config of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("GYM_", "GIT_", "PRE_COMMIT"))}
        self.env |= {"PATH": f"{BIN}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(folder / ".cache"), "HOME": str(folder)}
        self.write("resources_servers/mine/app.py", "")
        self.write(CONFIG, "mine:\n  resources_servers:\n    mine: {description: my own}\n")
        self.run("git", "init", "-q")
        self.run("git", "add", ".")

    def write(self, path: str, text: str) -> Path:
        """Write a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *command: str | Path, shell: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        given: Any = command[0] if shell else command
        return subprocess.run(given, shell=shell, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=120)

    def commit(self, *hooks: dict[str, Any]) -> tuple[int, str]:
        """What pre-commit does with what is staged: exit code and output. The hooks run in the Python of the tests."""
        local = [{**hook, "language": "system"} for hook in hooks]
        self.write(".pre-commit-config.yaml", yaml.safe_dump({"repos": [{"repo": "local", "hooks": local}]}))
        self.run("git", "add", ".")
        done = self.run(sys.executable, "-m", "pre_commit", "run", "--hook-stage", "manual")
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone with one config that holds."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    return Clone(tmp_path)


def test_pre_commit_takes_what_is_offered_and_what_is_ours(clone: Clone) -> None:
    for kind, file in (("manifest", ".pre-commit-hooks.yaml"), ("config", ".pre-commit-config.yaml")):
        done = clone.run(sys.executable, "-m", "pre_commit", f"validate-{kind}", REPOSITORY / file)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_a_hook_passes_what_holds_and_names_what_does_not(clone: Clone, hook: str) -> None:
    code, said = clone.commit(HOOKS[hook])
    assert (code, "Passed" in said) == (0, True), said
    clone.write(CONFIG, "mine:\n  resources_servers:\n    mine: {description: my own}\n    other: {}\n")
    code, said = clone.commit(HOOKS[hook])
    assert (code, f"{CONFIG}:" in said, "Traceback" in said) == (1, True, False), said


def test_a_hook_looks_at_what_is_committed_alone(clone: Clone) -> None:
    clone.write("deploy/chart.yaml", "{{ not yaml }}: [\n")
    clone.write("resources_servers/mine/prompts/judge.yaml", "system: Judge.\n")
    code, said = clone.commit(HOOKS["gym-validate"])
    assert code == 0, said
    clone.run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "all")
    clone.write("README.md", "changed\n")
    code, said = clone.commit(HOOKS["gym-validate"])
    assert (code, "Skipped" in said) == (0, True), said


def test_the_example_of_hooks(clone: Clone) -> None:
    (repo,) = EXAMPLES[0]["repos"]
    used = [{**HOOKS[hook["id"]], **hook, "stages": ["manual"]} for hook in repo["hooks"]]
    assert [hook["id"] for hook in used] == list(HOOKS)
    code, said = clone.commit(*used)
    assert (code, said.count("Passed")) == (0, 2), said
    clone.write(
        CONFIG, "mine:\n  resources_servers:\n    mine: {description: my own, datasets: [{name: x, type: train, jsonl_fpath: x.jsonl}]}\n"
    )
    assert clone.commit(HOOKS["gym-validate"])[0] == 0
    code, said = clone.commit(*used)
    assert (code, "warning[no-manifest]" in said) == (1, True), said


def test_our_own_hooks_name_programs_that_there_are() -> None:
    (repo,) = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repo["hooks"]:
        program, *arguments = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        files = [] if hook.get("pass_filenames") is False else [str(Path(__file__))]
        done = subprocess.run(
            [BIN / Path(program).name, *arguments, *files], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_steps_of_the_workflow(clone: Clone) -> None:
    """`run:` of a step is a script of the shell; what fails does not keep steps with `always()` from running."""
    (job,) = EXAMPLES[1]["jobs"].values()
    steps = [step for step in job["steps"] if step.get("run", "").startswith("gym ")]
    assert len(steps) == 2
    assert [clone.run(step["run"], shell=True).returncode for step in steps] == [0, 0]
    clone.write(CONFIG, "mine:\n  resources_servers:\n    mine: {description: my own}\n    other: {}\n")
    annotated, written = [clone.run(step["run"], shell=True) for step in steps]
    assert (annotated.returncode, written.returncode) == (1, 1)
    assert re.search(rf"^::error file={re.escape(CONFIG)},line=\d+,col=\d+,title=[a-z-]+::", annotated.stdout, re.MULTILINE)
    assert all("if" in step for step in job["steps"] if step.get("with", {}).get("sarif_file"))
    (upload,) = [step for step in job["steps"] if step.get("with", {}).get("sarif_file")]
    log = yaml.safe_load((clone.folder / upload["with"]["sarif_file"]).read_text())
    schema = REPOSITORY / "tests" / "unit" / "config" / "sarif_schema" / "sarif-2.1.0-rtm.5.json"
    jsonschema.Draft4Validator(yaml.safe_load(schema.read_text())).validate(log)
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"] if result["level"] == "error"]
    assert {place["artifactLocation"]["uri"] for place in places} == {CONFIG}
