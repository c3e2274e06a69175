"""SWE-bench Pro as a profile: each row brings the script that runs its tests and the program that reads what they print."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gym.swe.eval_scripts import apply_test_patch, words, write_file
from gym.swe.profile import END, START, Evaluation, Grade, Task
from gym.swe.rows import image_of, required_tests, test_names, text, word

WORKDIR = "/app"
IMAGES = "jefzda/sweap-images"
RUN_SCRIPT = "/tmp/gym-run-script.sh"
_ENV = re.compile(r"^[ \t]*ENV[ \t]+((?:.*\\\r?\n)*.*)$", re.MULTILINE)
_CHECKOUT = re.compile(r"git checkout (?P<commit>[0-9a-f]{40}) -- .+")
_WORST_FIRST = ("ERROR", "FAILED", "SKIPPED")
"""A test that is named twice counts as the worse; every status that is not here is worse than PASSED and better than these."""


class SwebenchProProfile:
    """Rows of SWE-bench Pro."""

    def task(self, row: Mapping[str, Any], image_template: str | None) -> Task:
        """Read a row. The image is pinned by its digest where the row has one."""
        instance_id = word(row, "instance_id")
        for name in ("run_script", "parser_script"):
            word(row, name)
        digest, tag = text(row, "image_digest", ""), text(row, "dockerhub_tag", "")
        if not (image_template or row.get("image") or digest or tag):
            raise ValueError("the row has neither image_digest nor dockerhub_tag, and image_template is not set")
        return Task(
            instance_id=instance_id,
            image=image_of(row, instance_id, image_template, f"{IMAGES}@{digest}" if digest else f"{IMAGES}:{tag}"),
            workdir=text(row, "workdir", WORKDIR),
            gold_patch=text(row, "patch"),
            test_patch=text(row, "test_patch", ""),
            required=required_tests(row, "fail_to_pass", "pass_to_pass"),
            row=row,
        )

    def evaluation(self, task: Task, base_commit: str) -> Evaluation:
        """The row's run script on the selected test files, as one argument with commas."""
        row = task.row
        selected = ",".join(test_names(row, "selected_test_files_to_run"))
        steps = [
            *(line for name in ("base_dockerfile", "instance_dockerfile") for line in exports(text(row, name, ""))),
            'for name in $(compgen -e OTEL_); do unset "$name"; done  # tests that measure themselves would wait for a collector',
            f"cd -- {words([task.workdir])} || exit 97",
            put_tests(task, base_commit),
            write_file(RUN_SCRIPT, text(row, "run_script")),
            _on_both_streams(START),
            f"bash {RUN_SCRIPT} {words([selected])}",
            "code=$?",
            _on_both_streams(END),
            "exit $code",
        ]
        return Evaluation("\n".join(steps) + "\n", log_parser=text(row, "parser_script"))

    def grade(self, task: Task, output: str) -> Grade:
        """Read the parser's result. Every required test must have passed; only one that failed or broke is sure to have failed."""
        statuses: dict[str, str] = {}
        for test in json.loads(output)["tests"]:
            name, status = str(test["name"]), str(test["status"])
            statuses[name] = min(statuses.get(name, status), status, key=_badness)
        failed = tuple(test for test in task.required if statuses.get(test) != "PASSED")
        surely = tuple(test for test in failed if statuses.get(test) in ("FAILED", "ERROR"))
        return Grade(not failed, statuses, failed, surely, {"failed_required_tests": list(failed)})


def exports(dockerfile: str) -> list[str]:
    """The `ENV` lines of a Dockerfile as exports: a mirror of the image may have lost them."""
    found: list[str] = []
    for match in _ENV.finditer(dockerfile):
        setting = re.sub(r"\\\r?\n", " ", match[1]).strip()
        name, blank, value = setting.partition(" ")
        found.append(f"export {setting}" if "=" in name or not blank else f'export {name}="{value.strip()}"')
    return found


def put_tests(task: Task, base_commit: str) -> str:
    """Put the tests of the solution in place: its files where the image's repository has that commit, as upstream does, else the test patch.

    The files are preferred, as published test patches lack the content of binary files. An image that was made without
    the future lacks the commit, and some rows end with another command: for text, the test patch says the same.
    """
    lines = text(task.row, "before_repo_set_cmd", "").strip().splitlines() or [""]
    command = lines[-1].strip()
    patch = apply_test_patch(base_commit, task.test_patch)
    if _CHECKOUT.fullmatch(command) is None:
        return patch
    return f"if ! {{ {command}; }} 2>/dev/null; then\n{patch}\nfi"


def _on_both_streams(marker: str) -> str:
    return f"echo '{marker}'; echo '{marker}' >&2"


def _badness(status: str) -> int:
    if status == "PASSED":
        return len(_WORST_FIRST) + 1
    return _WORST_FIRST.index(status) if status in _WORST_FIRST else len(_WORST_FIRST)
