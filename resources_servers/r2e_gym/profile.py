"""R2E-Gym as a profile: tests that only the image has, and a map of what each of them must say."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from gym.swe.eval_scripts import marked
from gym.swe.profile import Evaluation, Grade, Task
from gym.swe.pytest_logs import plain
from gym.swe.rows import image_from_template, text, word

WORKDIR = "/testbed"
TESTS, RUNNER = "/r2e_tests", "/run_tests.sh"
_PLACES = ("", "/root/", "/")
_NOTES = ("syn_issue", "expected_test_output", "execution_result", "parsed_commit", "modified_files", "modified_entities")
HIDDEN = (*(f"{place}{name}" for place in _PLACES for name in ("r2e_tests", "run_tests.sh", "expected_test_output.json")), *(f"{n}.json" for n in _NOTES))

GATHER = f"""# Put the hidden tests and their runner where no patch reaches them.
for folder in r2e_tests /root/r2e_tests; do [ -e {TESTS} ] || [ ! -d $folder ] || mv $folder {TESTS}; done
for script in run_tests.sh /root/run_tests.sh; do [ -e {RUNNER} ] || [ ! -f $script ] || mv $script {RUNNER}; done
[ -d {TESTS} ] && [ -f {RUNNER} ] || {{ echo 'the image has no r2e_tests, or no run_tests.sh'; exit 1; }}
"""

RUN = f"""cd {WORKDIR} || exit 97
export PATH="$PWD/.venv/bin:$PATH"
python -c 'import chardet' 2>/dev/null || timeout 60 uv pip install -q chardet >/dev/null 2>&1  # some runners need it
find . {TESTS} -path ./.venv -prune -o -name '*.pyc' -exec rm -f {{}} +
rm -rf r2e_tests && ln -s {TESTS} r2e_tests || exit 96
{marked(f"bash {RUNNER}")}
"""


class R2eGymProfile:
    """Rows of R2E-Gym."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. One without a `patch` has no gold patch, and is refused to the oracle."""
        instance_id, image = word(row, "instance_id"), word(row, "docker_image")
        return Task(
            instance_id=instance_id,
            image=image_from_template(image_template, instance_id) if image_template else image,
            workdir=WORKDIR,
            gold_patch=text(row, "patch", ""),
            test_patch="",
            required=tuple(expected(row)),
            row=row,
            setup=(GATHER,),
            hide=HIDDEN,
        )

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """The image's runner, on tests that are linked into the work tree for this run only."""
        return Evaluation(RUN, sentinel_folder=TESTS)

    def grade(self, task: Task, output: str) -> Grade:
        """The data set's rule: what is seen equals what is expected, with no test more and none less, failures included."""
        wanted, seen = expected(task.row), statuses(output)
        wrong = tuple(test for test in {**wanted, **seen} if wanted.get(test) != seen.get(test))
        failed = tuple(test for test in wrong if seen.get(test) in ("FAILED", "ERROR"))
        return Grade(not wrong, seen, wrong, failed, {"failed_required_tests": list(wrong)})


def expected(row: Mapping[str, Any]) -> dict[str, str]:
    """What each test must say. Raises ValueError if the row does not tell."""
    value = row.get("expected_output_json")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError("expected_output_json is no JSON") from error
    if not isinstance(value, dict) or not value or not all(isinstance(item, str) for item in cast("dict[Any, Any]", value).values()):
        raise ValueError("expected_output_json must map at least one test to its status")
    return {plain(test).split(" - ")[0]: status for test, status in cast("dict[str, str]", value).items()}


def statuses(output: str) -> dict[str, str]:
    """Test -> status from the first summary, by names without their file, as the expected maps were made."""
    found: dict[str, str] = {}
    for line in plain(output).partition("short test summary info")[2].splitlines():
        status = re.search("PASSED|FAILED|ERROR", line)
        if status is not None:
            found[".".join(line.split("::")[1:]).split(" - ")[0]] = status[0]
    return found
