"""SWE-bench Pro: the repository in /app, and rows with a run script, a parser, and the texts of the Dockerfiles."""

import json
from typing import Any

from task_builder.data_sets import DataSet
from task_builder.history import commits_of
from task_builder.images import Image
from task_builder.task import Task

_RUN = """#!/bin/bash
set -e

run_all_tests() {
  echo "Running all tests..."
  cd /app
  ALL || true
}

run_selected_tests() {
  local test_files=("$@")
  echo "Running selected tests: ${test_files[@]}"
  cd /app
  SELECTED || true
}

if [ $# -eq 0 ]; then
  run_all_tests
  exit $?
fi

if [[ "$1" == *","* ]]; then
  IFS=',' read -r -a TEST_FILES <<< "$1"
else
  TEST_FILES=("$@")
fi

run_selected_tests "${TEST_FILES[@]}"
"""
_COMMANDS = {
    "python": ("python3 -m pytest -v", 'python3 -m pytest -v "${test_files[@]}"'),
    "node": (
        "node --test --test-reporter=tap",
        'for file in "${test_files[@]}"; do echo "# file: $file"; node --test-reporter=tap "$file"; done',
    ),
}
_PARSER = '''"""Reads what the tests printed: parser.py STDOUT STDERR RESULT, where RESULT becomes {"tests": [{"name", "status"}]}."""

import json
import re
import sys

FOUND = []


def parse(output):
    file = ""
    for line in output.splitlines():
PATTERNS


def main(stdout_path, stderr_path, output_path):
    with open(stdout_path, encoding="utf-8", errors="replace") as file:
        parse(file.read())
    with open(output_path, "w", encoding="utf-8") as file:
        json.dump({"tests": [{"name": name, "status": status} for name, status in FOUND]}, file, indent=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
'''
_PATTERNS = {
    "python": """        match = re.match(r"^(\\S+\\.py::.+?) (PASSED|FAILED|SKIPPED|ERROR)\\b", line)
        if match:
            FOUND.append((match[1], match[2]))""",
    "node": """        if line.startswith("# file: "):
            file = line[len("# file: "):]
        match = re.match(r"^(ok|not ok) \\d+ - (.+)$", line)
        if match:
            FOUND.append((f"{file} | {match[2]}", "PASSED" if match[1] == "ok" else "FAILED"))""",
}
_BASE_DOCKERFILE = """FROM {base}
WORKDIR /app
RUN git clone https://git.example.com/{repo}.git .
"""
_INSTANCE_DOCKERFILE = """FROM base_{name}

ENV PYTEST_ADDOPTS="--tb=short -p no:cacheprovider"
ENV TEST_ENV=development
RUN cd /app && git reset --hard {base} && git clean -fdx
"""


def image(task: Task) -> Image:
    """The repository in /app."""
    return Image(f"gym-test/{task.name}:pro", task, "/app")


def _named(task: Task, which: str) -> list[str]:
    tests: list[str] = task.known[which]
    return tests if task.base_image == "python" else [f"{task.test_files[0]} | {test.removeprefix('- ')}" for test in tests]


def row(task: Task) -> dict[str, Any]:
    """A row; names of fields and odd forms, such as JSON strings in one place and Python literals in another, are the data set's."""
    known, commits = task.known, commits_of(task.name)
    everything, selected = _COMMANDS[task.base_image]
    files = " ".join(task.test_files)
    return {
        "repo": task.repo,
        "instance_id": f"instance_{task.instance_id.removesuffix('-1')}-{commits.tests}-v{commits.base}",
        "base_commit": commits.base,
        "patch": task.patch("gold"),
        "test_patch": task.patch("test"),
        "problem_statement": json.dumps(known["problem_statement"], ensure_ascii=False),
        "requirements": "",
        "interface": "",
        "repo_language": {"node": "js"}.get(task.base_image, task.base_image),
        "fail_to_pass": repr(_named(task, "FAIL_TO_PASS")),
        "pass_to_pass": json.dumps(_named(task, "PASS_TO_PASS"), ensure_ascii=False),
        "issue_specificity": '["api_feat"]',
        "issue_categories": '["back_end_knowledge"]',
        "before_repo_set_cmd": (
            f"git reset --hard {commits.base}\ngit clean -fd \ngit checkout {commits.base} \ngit checkout {commits.tests} -- {files}"
        ),
        "selected_test_files_to_run": json.dumps(task.test_files),
        "dockerhub_tag": f"gym-test.{task.name}-{commits.tests}",
        "image": image(task).name,
        "run_script": _RUN.replace("ALL", everything).replace("SELECTED", selected),
        "parser_script": _PARSER.replace("PATTERNS", _PATTERNS[task.base_image]),
        "base_dockerfile": _BASE_DOCKERFILE.format(base="debian:bookworm", repo=task.repo),
        "instance_dockerfile": _INSTANCE_DOCKERFILE.format(name=task.name, base=commits.base),
        "subset": "pro",
        "split": "test",
    }


SWEBENCH_PRO = DataSet(
    "swebench_pro",
    "resources_servers/swebench_pro/data/example.jsonl",
    ("calc", "slug", "notes", "ttlcache", "tables"),
    image,
    row,
)
