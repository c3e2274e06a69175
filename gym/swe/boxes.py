"""Preparing task sandboxes, capturing patches, running tests: each a few commands in a sandbox.

Whoever calls owns the sandbox. A command that fails because the sandbox is gone raises
`SandboxError`; one that fails by itself raises what the caller needs to know.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gym.protocol.errors import ContractError
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import ExecResult, SandboxFileError, SandboxGoneError
from gym.swe import scripts
from gym.swe.outcomes import GradingRun, Patch
from gym.swe.patches import touched, without
from gym.swe.profile import Profile, Task

TASK_REFUSED = "swe:task_refused"
"""The failure kind of a task whose image is not what the row says."""

_LOG_BYTES = 64 * 2**20
_PATCH_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Base:
    """The state that the agent started from."""

    commit: str
    untracked: frozenset[str]


async def run(box: OwnedSandbox, script: str, timeout: float, *, cwd: str = "/", stdin: bytes | None = None, **env: str) -> ExecResult:
    """Run a script with `GYM_<NAME>` set for each keyword. Raises SandboxGoneError if the sandbox died.

    It starts in a folder that is always there; scripts go to the work tree by themselves.
    """
    variables = {f"GYM_{name.upper()}": value for name, value in env.items()}
    result = await box.exec(script, cwd=cwd, env=variables, timeout_s=timeout, stdin=stdin)
    if result.error_type == "sandbox":
        raise SandboxGoneError(f"sandbox {box.sandbox_id} died: {result.stderr.strip()[-300:]}")
    return result


async def prepare(box: OwnedSandbox, task: Task, timeout: float, *, scrub: bool) -> Base:
    """Set up, hide and scrub before the agent starts. Raises ContractError if the task cannot be made safe: it is then refused."""
    await _set_up(box, task, timeout)
    if task.hide:
        listed = "\n".join(task.hide).encode() + b"\n"
        _must(await run(box, scripts.HIDE, timeout, stdin=listed, workdir=task.workdir), "hiding what the grader needs")
    out = f"/tmp/gym-{secrets.token_hex(8)}"
    if scrub:
        _must(await run(box, scripts.SCRUB, timeout, workdir=task.workdir, out=out), "scrubbing the history past the base commit")
    _must(await run(box, scripts.PREPARE, timeout, workdir=task.workdir, out=out), "reading the repository")
    commit = (await box.download(f"{out}.base")).decode().strip()
    untracked = (await box.download(f"{out}.untracked")).split(b"\0")
    await run(box, 'rm -f -- "$GYM_OUT".*', timeout, out=out)
    return Base(commit, frozenset(name.decode(errors="surrogateescape") for name in untracked if name))


async def _set_up(box: OwnedSandbox, task: Task, timeout: float) -> str:
    """Check what every sandbox needs and run the task's own set-up; the commit that is checked out after it."""
    head = ""
    for command in ("", *task.setup):
        if command:
            _must(await run(box, command, timeout, cwd=task.workdir), f"setup command {command[:60]!r}")
        head = _must(await run(box, scripts.CHECK, timeout, workdir=task.workdir), f"reading the repository in {task.workdir}")
    return head.strip()


def _must(result: ExecResult, what: str) -> str:
    """The output of a command without which the task makes no sense."""
    if not result.ok:
        said = (result.stdout + result.stderr).strip()[-500:] or f"exit {result.return_code}"
        limit = " (time-out)" if result.error_type == "timeout" else ""
        raise ContractError(422, f"the task was refused: {what} failed{limit}: {said}", kind=TASK_REFUSED)
    return result.stdout


class CaptureError(Exception):
    """Nothing can be said about the patch, and that may be nobody's fault."""


async def capture(box: OwnedSandbox, task: Task, base: Base, timeout: float) -> Patch:
    """What the agent changed.

    A repository that is gone, or a change of more than 128 MiB, gives an empty patch that says so: that
    is the agent's work. Raises SandboxError for a sandbox that died, CaptureError for everything else.
    """
    out = f"/tmp/gym-{secrets.token_hex(8)}"
    result = await run(box, scripts.CAPTURE, timeout, workdir=task.workdir, base=base.commit, out=out)
    said = (result.stdout + result.stderr).strip()[-500:] or f"exit {result.return_code}"
    if result.return_code == scripts.NO_REPOSITORY:
        return Patch(b"", "none", f"the repository is gone: {said}")
    if not result.ok:
        raise CaptureError(f"no end within {timeout:g} s" if result.error_type == "timeout" else said)
    try:
        data = await box.download(f"{out}.diff", max_bytes=_PATCH_BYTES)
    except SandboxFileError as error:
        return Patch(b"", "none", f"the patch cannot be taken: {error}")
    data = without(data, _no_part_of_the_patch(task, base))
    return Patch(data, "worktree" if data else "none")


def _no_part_of_the_patch(task: Task, base: Base) -> Callable[[str], bool]:
    """Whether a path stands for the image's, the grader's or nobody's file; what lies below such a path counts as well."""
    dropped = {name.rstrip("/") for name in base.untracked} | touched(task.test_patch.encode()) | {name.rstrip("/") for name in task.hide}

    def drop(path: str) -> bool:
        return path in dropped or any(path[:index] in dropped for index, letter in enumerate(path) if letter == "/")

    return drop


async def run_tests(box: OwnedSandbox, profile: Profile, task: Task, patch: Patch, setup_timeout: float, timeout: float) -> GradingRun:
    """Apply the patch in a fresh sandbox, run the tests, read what they said. Raises SandboxError if the sandbox died."""
    try:
        head = await _set_up(box, task, setup_timeout)
    except ContractError as error:  # the task sandbox was well, so trying again may help
        return GradingRun(None, problem=error.message)
    path = f"/tmp/gym-{secrets.token_hex(8)}.diff"
    await box.upload(path, patch.data)
    applied = await run(box, scripts.APPLY, setup_timeout, workdir=task.workdir, patch=path)
    if applied.error_type == "timeout" or applied.return_code not in (0, 1):
        said = applied.stderr.strip()[-300:] or f"exit {applied.return_code}"
        return GradingRun(None, problem=f"it could not be tried whether the patch applies: {said}")
    if applied.return_code == 1:
        return GradingRun(False, output=applied.stdout + applied.stderr)
    evaluation = profile.evaluation(task, head)
    start, end = (f"{marker} {secrets.token_hex(8)}" for marker in (evaluation.start_marker, evaluation.end_marker))
    script = evaluation.script.replace(evaluation.start_marker, start).replace(evaluation.end_marker, end)
    started = time.monotonic()
    result = await box.exec(scripts.RUN_TESTS, timeout_s=timeout, cwd=task.workdir, max_output_bytes=_LOG_BYTES, stdin=script.encode())
    seconds = {"test_time_s": round(time.monotonic() - started, 3), "test_exit_code": result.return_code}
    if result.error_type == "sandbox":
        problem = f"the grading sandbox {box.sandbox_id} died while its tests ran"
        return GradingRun(True, output=result.stdout, problem=problem, problem_kind="provider_unavailable", fields=seconds)
    return await asyncio.to_thread(read_output, profile, task, result, start, end, seconds)


def read_output(profile: Profile, task: Task, result: ExecResult, start: str, end: str, fields: Mapping[str, Any]) -> GradingRun:
    """What a test run's output allows to be said; see `outcomes` for what follows from it."""
    timed_out = result.error_type == "timeout"
    early = " before the time-out" if timed_out else ""
    before, started, rest = result.stdout.partition(start)
    middle, ended, _ = rest.partition(end)
    shown = middle if started else before

    def nothing(problem: str) -> GradingRun:
        return GradingRun(True, None, timed_out, shown, problem, fields=fields)

    refused = next((line for line in before.splitlines() if _test_patch_refused(line)), None)
    if refused is not None:
        shown = result.stdout
        return nothing(f"the test patch did not apply: {refused[:200]}")
    if not started:
        return nothing("the tests did not start" + (early or f" (exit {result.return_code})"))
    try:
        grade = profile.grade(task, middle)
    except Exception as error:  # parsers are not ours, and read what a model's code printed
        return nothing(f"the output could not be read: {type(error).__name__}: {str(error)[:200]}")
    if not ended and not timed_out and not grade.definitely_failed:  # a script under `set -e` ends with the tests that fail
        return nothing(f"the tests ended without their end marker (exit {result.return_code})")
    if not grade.statuses:
        return nothing("no test result could be read from the output" + early)
    if result.truncated and not grade.resolved and not grade.definitely_failed:
        return nothing(f"the tests printed more than {_LOG_BYTES // 2**20} MiB, and a required test is not in what is left")
    return GradingRun(True, grade, timed_out, shown, fields=fields)


def _test_patch_refused(line: str) -> bool:
    """Whether a line is git's word that a patch does not fit."""
    return line.startswith("error: ") and (
        line.startswith(("error: patch failed:", "error: corrupt patch"))
        or line.rstrip().endswith(("patch does not apply", "already exists in working directory", "No such file or directory"))
    )
