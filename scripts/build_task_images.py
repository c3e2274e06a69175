#!/usr/bin/env python3
"""Builds the images of the test tasks that this repository brings along, from the clone and Debian's packages alone.

usage: build_task_images.py [--check] [--write-row] [--force] [TASK...]

A task is a folder of `scripts/task_images/`: `repo/` (the project at its base commit), `gold.patch`, `test.patch`,
`task.json`, and `row.json`, which is made from them in the form of a SWE-bench Verified row that carries its own eval
script. The image `gym-test/<task>:latest` looks like a SWE-bench image: the project in /testbed, `conda activate
testbed` works, and its git history holds what an agent must not see: later commits, tags and remote branches with the
fix. Commits have fixed dates and names, so that the base commit is the same on every machine.

An image that was built from the same content is left as it is. `--check` grades the row in fresh containers: without
a patch no FAIL_TO_PASS test may pass, with the gold patch all tests must.
"""

import argparse
import hashlib
import json
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TASKS = HERE / "task_images"
BASE_IMAGE = "gym-base:bookworm"
CONTENT_LABEL = "gym-test.content"
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"

SET_UP = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends python3-pytest >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

mkdir -p /opt/testbed-env/bin /opt/miniconda3/bin
ln -s /usr/bin/python3 /opt/testbed-env/bin/python
cat >/opt/testbed-env/bin/activate <<'X'
export PATH=/opt/testbed-env/bin:$PATH CONDA_DEFAULT_ENV=testbed CONDA_PREFIX=/opt/testbed-env
X
cat >/opt/miniconda3/bin/activate <<'X'
conda() {
  case "$1 ${2:-}" in
    "activate testbed") . /opt/testbed-env/bin/activate ;;
    *) echo "conda: only 'conda activate testbed' is known here" >&2; return 1 ;;
  esac
}
X

cd /testbed
chown -R 0:0 .
find . -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
git config --system --add safe.directory '*'
export GIT_AUTHOR_NAME=calc GIT_AUTHOR_EMAIL=calc@example.com GIT_COMMITTER_NAME=calc GIT_COMMITTER_EMAIL=calc@example.com
commit() { GIT_AUTHOR_DATE="$1" GIT_COMMITTER_DATE="$1" git commit -q -m "$2"; }
git init -q -b main
printf '__pycache__/\n.pytest_cache/\n' >.gitignore
git add README.md pyproject.toml .gitignore
commit 2024-01-01T00:00:00Z 'Start the project'
git add -A
commit 2024-01-02T00:00:00Z 'Evaluate expressions'
git tag v1.0
base=$(git rev-parse HEAD)

# What came later, and must not be found by an agent.
git checkout -q -b fix/left-to-right
git apply --index /tmp/gold.patch
commit 2024-01-03T00:00:00Z 'Apply operators from left to right'
git apply --index /tmp/test.patch
commit 2024-01-04T00:00:00Z 'Test the order of operators'
git tag v1.1
git tag -a -m 'release 1.1' release-1.1
git update-ref refs/remotes/origin/main HEAD
git update-ref refs/remotes/origin/fix HEAD~1
git remote add origin https://git.example.com/gym-test/calc.git
git notes add -m 'fixed by applying gold.patch' "$base"
git checkout -q main
printf 'built\n' >build-stamp.txt
rm -rf /tmp/* /root/.cache
echo "BASE $base"
"""


def docker(*args: str, stdin: str | None = None) -> str:
    """The standard output of a docker command; ends the program with the command's own words if it fails."""
    done = subprocess.run(["docker", *args], input=stdin, text=True, capture_output=True, check=False, errors="replace")
    if done.returncode:
        sys.exit(f"build_task_images.py: docker {args[0]} failed: {(done.stderr or done.stdout)[-2000:].strip()}")
    return done.stdout


def image_of(task: str) -> str:
    """The image's name."""
    return f"gym-test/{task}:latest"


def content_id(folder: Path) -> str:
    """One digest over everything that goes into the image."""
    digest = hashlib.sha256(SET_UP.encode())
    for path in sorted([*folder.glob("repo/**/*"), folder / "gold.patch", folder / "test.patch"]):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def is_built(task: str, content: str) -> bool:
    """Whether the image is there and was made from `content`."""
    template = f'{{{{index .Config.Labels "{CONTENT_LABEL}"}}}}'
    done = subprocess.run(["docker", "image", "inspect", "-f", template, image_of(task)], text=True, capture_output=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == content


def build(task: str, content: str) -> str:
    """Build the image; its base commit."""
    folder = TASKS / task
    box = f"nemo-gym-build-{secrets.token_hex(8)}"
    # Host networking, because a package mirror may be reachable only with the host's own route.
    docker("run", "-d", "--rm", "--name", box, "--network", "host", BASE_IMAGE, "sleep", "1800")
    try:
        docker("exec", box, "mkdir", "/testbed")
        for path in sorted(p for p in folder.glob("repo/**/*") if p.is_file() and "__pycache__" not in p.parts):
            target = f"/testbed/{path.relative_to(folder / 'repo')}"
            docker("exec", box, "mkdir", "-p", str(Path(target).parent))
            docker("cp", str(path), f"{box}:{target}")
        for name in ("gold.patch", "test.patch"):
            docker("cp", str(folder / name), f"{box}:/tmp/{name}")
        said = docker("exec", "-i", box, "sh", "-s", stdin=SET_UP)
        changes = ["WORKDIR /testbed", f"LABEL {CONTENT_LABEL}={content}", 'CMD ["/bin/bash"]']
        docker("commit", *[part for change in changes for part in ("--change", change)], box, image_of(task))
    finally:
        subprocess.run(["docker", "rm", "-f", box], capture_output=True, check=False)
    found = re.search(r"^BASE ([0-9a-f]{40})$", said, re.MULTILINE)
    if found is None:
        sys.exit(f"build_task_images.py: {task}: the set-up named no base commit")
    return found[1]


def eval_script(base: str, test_files: list[str], test_patch: str) -> str:
    """The script that the row carries: restores the test files, applies the test patch, and runs the tests between the markers."""
    files = " ".join(test_files)
    return f"""#!/bin/bash
set -uo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git config --global --add safe.directory /testbed
git checkout {base} -- {files}
git apply -v - <<'GYM_TEST_PATCH'
{test_patch.rstrip()}
GYM_TEST_PATCH
echo '{START}'
python -m pytest -rA -p no:cacheprovider {files}
code=$?
echo '{END}'
git checkout {base} -- {files}
exit $code
"""


def make_row(task: str, base: str) -> dict[str, Any]:
    """The task as a row."""
    folder = TASKS / task
    known = json.loads((folder / "task.json").read_text())
    test_patch = (folder / "test.patch").read_text()
    return {
        "repo": known["repo"],
        "instance_id": known["instance_id"],
        "base_commit": base,
        "patch": (folder / "gold.patch").read_text(),
        "test_patch": test_patch,
        "problem_statement": known["problem_statement"],
        "hints_text": known["hints_text"],
        "created_at": known["created_at"],
        "version": known["version"],
        "FAIL_TO_PASS": json.dumps(known["FAIL_TO_PASS"]),
        "PASS_TO_PASS": json.dumps(known["PASS_TO_PASS"]),
        "environment_setup_commit": base,
        "difficulty": known["difficulty"],
        "image": image_of(task),
        "eval_script": eval_script(base, known["test_files"], test_patch),
        "eval_type": "pass_and_fail",
        "log_parser": "parse_log_pytest",
    }


def base_in_image(task: str) -> str:
    """The commit that is checked out in the image."""
    return docker("run", "--rm", "--network", "none", image_of(task), "git", "rev-parse", "HEAD").strip()


def passed_tests(row: dict[str, Any], patch: str | None) -> set[str]:
    """The tests that pass in a fresh container after `patch`."""
    apply = "" if patch is None else f"cd /testbed && git apply -v - <<'GYM_PATCH' || exit 99\n{patch}\nGYM_PATCH\n"
    command = ["docker", "run", "--rm", "-i", "--network", "none", row["image"], "bash", "-s"]
    done = subprocess.run(command, input=apply + row["eval_script"], text=True, capture_output=True, check=False)
    if START not in done.stdout or END not in done.stdout:
        sys.exit(f"build_task_images.py: {row['instance_id']}: the tests did not run: {(done.stdout + done.stderr)[-2000:]}")
    log = done.stdout.split(START, 1)[1].split(END, 1)[0]
    return set(re.findall(r"^PASSED (.+)$", log, re.MULTILINE))


def check(row: dict[str, Any]) -> None:
    """End the program unless the row grades as it says."""
    must_start_failing, must_pass = set(json.loads(row["FAIL_TO_PASS"])), set(json.loads(row["PASS_TO_PASS"]))
    without, with_gold = passed_tests(row, None), passed_tests(row, row["patch"])
    problems = [
        *(f"passes without a patch: {test}" for test in sorted(must_start_failing & without)),
        *(f"fails without a patch: {test}" for test in sorted(must_pass - without)),
        *(f"fails with the gold patch: {test}" for test in sorted((must_start_failing | must_pass) - with_gold)),
    ]
    if problems:
        sys.exit(f"build_task_images.py: {row['instance_id']} does not grade as its row says:\n  " + "\n  ".join(problems))
    print(f"{row['instance_id']}: no patch {len(without)} passed, gold {len(with_gold)} passed", file=sys.stderr)


def main() -> None:
    """Build what is asked, or everything."""
    known = sorted(path.name for path in TASKS.iterdir() if (path / "task.json").is_file())
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task", nargs="*", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--check", action="store_true", help="grade each row in fresh containers")
    parser.add_argument("--write-row", action="store_true", help="write row.json anew; without it a row that differs is an error")
    parser.add_argument("--force", action="store_true", help="build even if the image is there")
    options = parser.parse_args()
    if unknown := sorted(set(options.task) - set(known)):
        parser.error(f"unknown task {', '.join(unknown)} (known: {', '.join(known)})")
    docker("image", "inspect", "-f", "{{.Id}}", BASE_IMAGE)
    for task in options.task or known:
        content = content_id(TASKS / task)
        built = not options.force and is_built(task, content)
        row = make_row(task, base_in_image(task) if built else build(task, content))
        path = TASKS / task / "row.json"
        text = json.dumps(row, indent=2) + "\n"
        if options.write_row:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            sys.exit(f"build_task_images.py: {path} is not what its parts give: run with --write-row and look at the difference")
        if options.check:
            check(row)
        print(json.dumps({"task": task, "image": image_of(task), "base_commit": row["base_commit"], "built": not built}))


if __name__ == "__main__":
    main()
