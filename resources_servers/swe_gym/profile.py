"""SWE-Gym as a profile: the repository's own test command on the files of the test patch, in the conda environment `testbed`.

Which command is in `specs.json`, by repository and version; a row may bring its own.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gym.swe.eval_scripts import apply_test_patch, files_after, marked, words
from gym.swe.profile import Evaluation, Grade, Task, grade_required
from gym.swe.pytest_logs import status_lines
from gym.swe.rows import image_of, required_tests, text, word

WORKDIR = "/testbed"
IMAGE = "xingyaoww/sweb.eval.x86_64.{instance_id_s}:latest"
PASSING = frozenset({"PASSED", "XFAIL"})

_TABLE = json.loads(Path(__file__).with_name("specs.json").read_text())
SPECS = {(spec["repo"], version): {"install": _TABLE["install"], **spec} for spec in _TABLE["specs"] for version in spec["versions"].split()}
_NO_TESTS = (".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml")
_MYPY_CASE = re.compile(r"\[case ([^\]]+)\]")
_ACTIVATE = """. /opt/miniconda3/bin/activate && conda activate testbed || { echo 'the image has no conda environment testbed'; exit 96; }"""


class SweGymProfile:
    """Rows of SWE-Gym."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. Tests are known by their ids up to the first blank, as the data set's own parser cuts them."""
        instance_id = word(row, "instance_id")
        required = required_tests(row, "FAIL_TO_PASS", "PASS_TO_PASS")
        return Task(
            instance_id=instance_id,
            image=image_of(row, instance_id, image_template, IMAGE, field="image_name"),
            workdir=WORKDIR,
            gold_patch=text(row, "patch"),
            test_patch=word(row, "test_patch"),
            required=tuple(dict.fromkeys(_cut(test) for test in required)),
            row=row,
        )

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """Install the project again, as a patch may have changed what is built, then run the tests of the test patch."""
        spec = spec_of(task.row)
        steps = [
            f"cd {WORKDIR} || exit 97",
            _ACTIVATE,
            *spec.get("eval_commands", ()),
            # Apart and marked, so that none of its words are taken for git's on the test patch.
            f"{{ {spec['install'] or ':'}\n}} 2>&1 | sed 's/^/install: /'",
            apply_test_patch(base_commit, task.test_patch),
            marked(f"{spec['test_cmd']} {_selected(task)}"),
        ]
        return Evaluation("\n".join(steps) + "\n")

    def grade(self, task: Task, output: str) -> Grade:
        """Every required test passed, or failed where its author expects it to."""
        return grade_required(task, {_cut(rest): status for status, rest in status_lines(output)}, PASSING)


def spec_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The table's entry with the row's own `test_cmd` and `install` in place. Raises ValueError if there is no command."""
    repo, version = word(row, "repo"), text(row, "version")
    own = {name: text(row, name) for name in ("test_cmd", "install") if row.get(name) is not None}
    spec: dict[str, Any] = {"install": "", **SPECS.get((repo.lower(), version), {}), **own}
    if not spec.get("test_cmd", "").strip():
        raise ValueError(f"specs.json knows no way to test {repo} {version}, and the row has no test_cmd")
    return spec


def _selected(task: Task) -> str:
    """What the command is told to run: files, or for mypy, whose tests are cases in data files, an expression that selects them."""
    if task.row["repo"].lower() == "python/mypy" and task.row.get("test_cmd") is None:
        return words([" or ".join(_MYPY_CASE.findall(task.test_patch))])
    files = [path for path in files_after(task.test_patch) if not path.endswith(_NO_TESTS)]
    if not files:
        raise ValueError("test_patch leaves no file with tests")
    return words(files)


def _cut(test: str) -> str:
    return test.split(maxsplit=1)[0] if test.strip() else test
