"""Three real tasks, dressed as rows of the data sets that publish none for them.

Code, gold patch and tests are real; what a data set adds (a hidden test, a run script, a log parser) is
written here. `derived_image` gives an image what R2E-Gym's and SWE-bench Pro's have: hidden tests and their runner,
`.venv`, `/app`, and a branch with the commit that Pro checks its tests out of.
"""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.shared_rows import SHARED, shared_rows

NO_FIT = "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1 @@\n-x\n+y\n"
"""A test patch that fits nothing."""
ABSENT_COMMIT = "1234567" * 5 + "12345"


@dataclass(frozen=True)
class Written:
    """A test of ours for a real task: its source, and what it gives with the gold patch."""

    rows: str
    source: str
    statuses: dict[str, str]


TASKS = {
    "tox-dev__pipdeptree-279": Written(
        "swe_rebench.jsonl",
        "import pytest\nfrom pipdeptree._models import PackageDAG\n\n\nclass TestFilter:\n"
        "    def test_unknown(self):\n        with pytest.raises(ValueError):\n            PackageDAG({}).filter_nodes(['x'], None)\n\n\n"
        "def test_no_filter():\n    assert not PackageDAG({}).filter_nodes(None, None)\n\n\n"
        "def test_that_is_known_to_fail():\n    assert PackageDAG({}), 'a - b'\n",
        {"TestFilter.test_unknown": "PASSED", "test_no_filter": "PASSED", "test_that_is_known_to_fail": "FAILED"},
    ),
    "getmoto__moto-7365": Written(
        "swe_gym.jsonl",
        "from moto.dynamodb.models.dynamo_type import DynamoType\n\n\n"
        "def test_sum_is_exact():\n    assert (DynamoType({'N': '0.1'}) + DynamoType({'N': '0.2'})).value == '0.3'\n\n\n"
        "def test_whole_numbers():\n    assert (DynamoType({'N': '1'}) + DynamoType({'N': '2'})).value == '3'\n",
        {"test_sum_is_exact": "PASSED", "test_whole_numbers": "PASSED"},
    ),
    "pylint-dev__pylint-4551": Written(
        "swebench_verified.jsonl",
        "import astroid\nimport pytest\nfrom pylint.pyreverse import utils\n\n\n"
        "@pytest.mark.parametrize('text', ['a: str = None', 'a: int = None'])\n"
        "def test_annotation(text):\n    assert utils.get_annotation(astroid.extract_node(text).value).name.startswith('Optional[')\n\n\n"
        "def test_visibility():\n    assert utils.get_visibility('_x') == 'protected'\n",
        {"test_annotation[a: str = None]": "PASSED", "test_annotation[a: int = None]": "PASSED", "test_visibility": "PASSED"},
    ),
}


def published(task: str) -> dict[str, Any]:
    """The row as it is published, with a local image under `image`; skips where either is not to be had."""
    row = next(row for row in shared_rows(TASKS[task].rows) if row["instance_id"] == task)
    script = SHARED / "tools/swe_images/build.py"
    image = f"gym-swe/{task.replace('__', '_s_')}:latest"
    if docker("image", "inspect", image).returncode:
        if not script.is_file():
            pytest.skip(f"image {image} is not there, nor is {script} to build it with (GYM_SHARED)")
        built = subprocess.run([sys.executable, str(script), task], capture_output=True, text=True, check=False, timeout=280)
        if built.returncode:
            pytest.skip(f"image {image} could not be built: {built.stderr[-300:]}")
    return {**row, "image": image}


def docker(*args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *args], input=stdin, text=True, capture_output=True, check=False, timeout=120)


@contextmanager
def derived_image(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with `image` as the other data sets' images are, and `solution`: the commit with the tests. The image is removed."""
    script = f"""set -euo pipefail
mkdir /r2e_tests && cat > /r2e_tests/test_1.py <<'X'
{TASKS[row["instance_id"]].source}X
ln -s /testbed /app && cd /testbed && ln -s /opt/testbed-env .venv
echo "PYTHONWARNINGS=ignore .venv/bin/python -W ignore -m pytest -rA r2e_tests" > run_tests.sh
echo '{{}}' > expected_test_output.json
git checkout -q -b solution && git apply --index - <<'X'
{row["test_patch"]}
X
git commit -q -m 'the tests' && git rev-parse HEAD && git checkout -q -
"""
    name = f"gym-test/dressed:{uuid.uuid4().hex}"
    box = docker("run", "-d", "--network", "none", row["image"], "sleep", "300").stdout.strip()
    try:
        made = docker("exec", "-i", box, "bash", "-s", stdin=script)
        assert made.returncode == 0, made.stdout + made.stderr
        assert docker("commit", box, name).returncode == 0
    finally:
        docker("rm", "-f", box)
    try:
        yield {**row, "image": name, "solution": made.stdout.strip()}
    finally:
        docker("rmi", "-f", name)


def _written(row: dict[str, Any]) -> Written:
    return TASKS[row["instance_id"]]


def as_scale_swe(row: dict[str, Any]) -> dict[str, Any]:
    """Our test as the row's own, beside the real ones; JSON strings."""
    written = _written(row)
    own = [f"test_fail_to_pass.py::{name.replace('.', '::', 1)}" for name, status in written.statuses.items() if status == "PASSED"]
    return {
        "instance_id": row["instance_id"],
        "workdir": "/testbed",
        "image_url": row["image"],
        "patch": row["patch"],
        "problem_statement": row["problem_statement"],
        "pre_commands": "git checkout -f -q HEAD && git checkout -q -b scaleswe && git gc -q --prune=now\\n",
        "f2p_patch": row["test_patch"],
        "f2p_script": written.source,
        "FAIL_TO_PASS": json.dumps([*_names(row, "FAIL_TO_PASS"), own[0]]),
        "PASS_TO_PASS": json.dumps([*_names(row, "PASS_TO_PASS"), *own[1:]]),
    }


def as_swe_gym(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it is; a command for repositories that the table does not know."""
    known = {} if row["repo"] == "getmoto/moto" else {"test_cmd": "python -m pytest -rA", "install": ""}
    return {"version": "none", **row, **known, "image_name": row["image"]}


def as_r2e_gym(row: dict[str, Any]) -> dict[str, Any]:
    """Our test as the hidden one."""
    expected = {f"\x1b[1m{name}\x1b[0m": status for name, status in _written(row).statuses.items()}
    kept = {name: row[name] for name in ("instance_id", "patch", "problem_statement")}
    return {**kept, "docker_image": row["image"], "expected_output_json": json.dumps(expected)}


_PRO_RUN = """#!/bin/bash
set -e
cd /app
IFS=',' read -r -a files <<< "$1"
[ "$SAID" = "a b" ] || { echo "no ENV of the Dockerfile" >&2; exit 1; }
python -m pytest -v --color=no -p no:cacheprovider "${files[@]}" || true
"""

PRO_PARSER = """
import json, re, sys

tests = []
for line in open(sys.argv[1]):
    found = re.match(r"(\\S+::\\S+).* (PASSED|FAILED|SKIPPED|ERROR)\\b", line)
    if found:
        tests.append({"name": found[1], "status": found[2]})
json.dump({"tests": tests}, open(sys.argv[3], "w"))
"""


def as_swebench_pro(row: dict[str, Any]) -> dict[str, Any]:
    """A run script and a parser of ours. The tests come from the solution's commit for one task; the others' commit is absent."""
    files = sorted({test.split("::")[0] for test in _names(row, "FAIL_TO_PASS") + _names(row, "PASS_TO_PASS")})
    commit = row["solution"] if row["instance_id"] == "tox-dev__pipdeptree-279" else ABSENT_COMMIT
    return {
        **{name: row[name] for name in ("instance_id", "base_commit", "patch", "problem_statement", "image")},
        "test_patch": "" if commit == row["solution"] else row["test_patch"],
        "before_repo_set_cmd": f"git reset --hard {row['base_commit']}\ngit checkout {commit} -- {' '.join(files)}\n",
        "selected_test_files_to_run": json.dumps(files),
        "fail_to_pass": str(_names(row, "FAIL_TO_PASS")),
        "pass_to_pass": json.dumps(_names(row, "PASS_TO_PASS")),
        "run_script": _PRO_RUN,
        "parser_script": PRO_PARSER,
        "base_dockerfile": "FROM base\nENV SAID a b\n",
        "instance_dockerfile": "FROM base\n",
    }


def _names(row: dict[str, Any], field: str) -> list[str]:
    return row[field] if isinstance(row[field], list) else json.loads(row[field])


Dress = Callable[[dict[str, Any]], dict[str, Any]]
