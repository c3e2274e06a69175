"""Preparing task sandboxes, capturing patches, running tests: each a few commands in a sandbox.

Whoever calls owns the sandbox. A command that fails because the sandbox is gone raises
`SandboxError`; one that fails by itself raises what the caller needs to know.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass

from gym.protocol.errors import ContractError
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import ExecResult, SandboxFileError, SandboxGoneError
from gym.swe import scripts
from gym.swe.outcomes import Patch, GradingRun
from gym.swe.patches import touched, without
from gym.swe.profile import Profile, Task

_LOG_BYTES = 64 * 2**20
_PATCH_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Base:
    """The state that the agent started from."""

    commit: str
    untracked: frozenset[str]


async def run(box: OwnedSandbox, script: str, timeout: float, *, stdin: bytes | None = None, **env: str) -> ExecResult:
    """Run a script with `GYM_<NAME>` set for each keyword. Raises SandboxGoneError if the sandbox died."""
    variables = {f"GYM_{name.upper()}": value for name, value in env.items()}
    result = await box.exec(script, env=variables, timeout_s=timeout, stdin=stdin)
    if result.error_type == "sandbox":
        raise SandboxGoneError(f"sandbox {box.sandbox_id} died: {result.stderr.strip()[-300:]}")
    return result


async def prepare(box: OwnedSandbox, task: Task, timeout: float, *, scrub: bool) -> Base:
    """Set up, hide and scrub before the agent starts. Raises ContractError if the task cannot be made safe: it is then refused."""
    for command in task.setup:
        _must(await run(box, command, timeout, workdir=task.workdir), f"setup command {command[:60]!r}")
    if task.hide:
        listed = "\n".join(task.hide).encode() + b"\n"
        _must(await run(box, scripts.HIDE, timeout, stdin=listed, workdir=task.workdir), "hiding what the grader needs")
    if scrub:
        _must(await run(box, scripts.SCRUB, timeout, workdir=task.workdir), "scrubbing the history past the base commit")
    out = f"/tmp/gym-{secrets.token_hex(8)}"
    _must(await run(box, scripts.PREPARE, timeout, workdir=task.workdir, out=out), "reading the repository")
    commit = (await box.download(f"{out}.base")).decode().strip()
    untracked = (await box.download(f"{out}.untracked")).split(b"\0")
    await run(box, 'rm -f -- "$GYM_OUT".*', timeout, out=out)
    return Base(commit, frozenset(name.decode(errors="surrogateescape") for name in untracked if name))


def _must(result: ExecResult, what: str) -> None:
    if not result.ok:
        said = (result.stdout + result.stderr).strip()[-500:] or f"exit {result.return_code}"
        limit = " (time-out)" if result.error_type == "timeout" else ""
        raise ContractError(422, f"the task was refused: {what} failed{limit}: {said}", kind="swe:task_refused")


async def capture(box: OwnedSandbox, task: Task, base: Base, timeout: float) -> Patch:
    """What the agent changed. A repository that the agent broke gives an empty patch that says so; a dead sandbox raises."""
    out = f"/tmp/gym-{secrets.token_hex(8)}"
    result = await run(box, scripts.CAPTURE, timeout, workdir=task.workdir, base=base.commit, out=out)
    if not result.ok:
        said = (result.stdout + result.stderr).strip()[-500:] or f"exit {result.return_code}"
        return Patch(b"", "none", "time-out" if result.error_type == "timeout" else said)
    try:
        data = await box.download(f"{out}.diff", max_bytes=_PATCH_BYTES)
    except SandboxFileError as error:
        return Patch(b"", "none", str(error))
    pristine = {name for name in base.untracked if not name.endswith("/")}
    folders = tuple(name for name in base.untracked if name.endswith("/"))
    graded = touched(task.test_patch.encode(errors="surrogateescape"))
    hidden = set(task.hide)
    data = without(data, lambda path: path in pristine or path in graded or path in hidden or path.startswith(folders))
    return Patch(data, "worktree" if data else "none")


async def run_tests(box: OwnedSandbox, profile: Profile, task: Task, patch: Patch, setup_timeout: float, timeout: float) -> GradingRun:
    """Apply the patch in a fresh sandbox, run the tests, read what they said."""
    for command in task.setup:
        _must(await run(box, command, setup_timeout, workdir=task.workdir), f"setup command {command[:60]!r}")
    head = await run(box, "git config --global --add safe.directory '*'; cd \"$GYM_WORKDIR\" && git rev-parse --verify 'HEAD^{commit}'", 60, workdir=task.workdir)
    _must(head, "reading the repository")
    name = f"/tmp/gym-{secrets.token_hex(8)}"
    await box.upload(f"{name}.diff", patch.data)
    applied = await run(box, scripts.APPLY, setup_timeout, workdir=task.workdir, patch=f"{name}.diff")
    if applied.error_type == "timeout" or applied.return_code not in (0, 1):
        return GradingRun(False, problem=f"the patch could not be applied: {applied.stderr.strip()[-300:] or applied.return_code}")
    if applied.return_code == 1:
        return GradingRun(False, output=applied.stdout + applied.stderr)
    evaluation = profile.evaluation(task, head.stdout.strip())
    start, end = (f"{marker} {secrets.token_hex(8)}" for marker in (evaluation.start_marker, evaluation.end_marker))
    script = evaluation.script.replace(evaluation.start_marker, start).replace(evaluation.end_marker, end)
    await box.upload(f"{name}.sh", script.encode(errors="surrogateescape"))
    # The script is read whole and removed before it runs, so that code under test cannot read the markers off it.
    command = f'exec 2>&1 </dev/null; gym_script=$(cat {name}.sh) && rm -f {name}.sh {name}.diff && eval "$gym_script"'
    started = time.monotonic()
    result = await box.exec(command, timeout_s=timeout, cwd=task.workdir, max_output_bytes=_LOG_BYTES)
    seconds = {"test_time_s": round(time.monotonic() - started, 3), "test_exit_code": result.return_code}
    if result.error_type == "sandbox":
        raise SandboxGoneError(f"sandbox {box.sandbox_id} died while its tests ran")
    return await asyncio.to_thread(read_output, profile, task, result, start, end, seconds)


def read_output(profile: Profile, task: Task, result: ExecResult, start: str, end: str, fields: dict[str, object]) -> GradingRun:
    """What a test run's output allows to be said; see `outcomes` for what follows from it."""
    timed_out = result.error_type == "timeout"
    before, started, rest = result.stdout.partition(start)
    middle, ended, _ = rest.partition(end)
    shown = middle if started else before
    if not started:
        problem = "the tests did not start" + (" before the time-out" if timed_out else f" (exit {result.return_code})")
        return GradingRun(True, None, timed_out, shown, problem, fields=fields)
    refused = [line for line in before.splitlines() if _test_patch_refused(line)]
    if refused:
        return GradingRun(True, None, timed_out, result.stdout, f"the test patch did not apply: {refused[0][:200]}", fields=fields)
    if not ended and not timed_out:
        return GradingRun(True, None, False, shown, f"the tests ended without their end marker (exit {result.return_code})", fields=fields)
    grade = profile.grade(task, middle)
    if not grade.statuses:
        problem = "no test result could be read from the output" + (" before the time-out" if timed_out else "")
        return GradingRun(True, None, timed_out, shown, problem, fields=fields)
    return GradingRun(True, grade, timed_out, shown, fields=fields)


def _test_patch_refused(line: str) -> bool:
    """Whether a line is git's word that a patch does not fit."""
    return line.startswith("error: ") and line.rstrip().endswith(("patch does not apply", "already exists in working directory", "No such file or directory"))
