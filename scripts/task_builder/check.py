"""Whether a task grades as it says: its plain image and eval script, run in fresh containers, with no server of ours in between.

Every data set's form runs the same tests on the same code; that the servers agree is tested with the servers.
"""

import re
import subprocess

from task_builder.data_sets import swebench
from task_builder.images import BuildError
from task_builder.task import END, START, Task

_PASSED = {
    "parse_log_pytest": r"^PASSED (.+)$",
    "parse_log_tap": r"^\s*ok \d+ (.+)$",
    "parse_log_redis": r"^\[ok\]: (.+)$",
    "parse_log_jq": r"^PASS: (.+)$",
}


def passed_tests(task: Task, patch: str | None) -> set[str]:
    """The tests that pass in a fresh container after `patch`."""
    apply = "" if patch is None else f"cd /testbed && git apply -v - <<'GYM_PATCH' || exit 99\n{patch}\nGYM_PATCH\n"
    command = ["docker", "run", "--rm", "-i", "--network", "none", swebench.image(task).name, "bash", "-s"]
    done = subprocess.run(command, input=(apply + swebench.eval_script(task)).encode(), capture_output=True, check=False)
    output = done.stdout.decode(errors="replace")
    if START not in output or END not in output:
        said = (output + done.stderr.decode(errors="replace"))[-2000:]
        raise BuildError(f"{task.name}: the tests did not run: {said}")
    log = output.split(START, 1)[1].split(END, 1)[0]
    return set(re.findall(_PASSED[task.known.get("log_parser", "parse_log_pytest")], log, re.MULTILINE))


def check(task: Task) -> str:
    """What was seen, in one line. Raises BuildError if the task does not grade as it says."""
    must_start_failing, must_pass = set(task.known["FAIL_TO_PASS"]), set(task.known["PASS_TO_PASS"])
    without, with_gold = passed_tests(task, None), passed_tests(task, task.patch("gold"))
    problems = [
        *(f"passes without a patch: {test}" for test in sorted(must_start_failing & without)),
        *(f"fails without a patch: {test}" for test in sorted(must_pass - without)),
        *(f"fails with the gold patch: {test}" for test in sorted((must_start_failing | must_pass) - with_gold)),
        *(f"is named nowhere: {test}" for test in sorted(with_gold - must_start_failing - must_pass)),
    ]
    if problems:
        raise BuildError(f"{task.name} does not grade as it says:\n  " + "\n  ".join(problems))
    return f"{task.name}: no patch {len(without)} passed, gold {len(with_gold)} passed"
