"""Preparing sandboxes: what every sandbox of a task needs, and what makes one safe to lend.

Whoever calls owns the sandbox. A command that fails because the sandbox is gone raises
`SandboxError`; one that fails by itself raises what the caller needs to know.
"""

import secrets
from dataclasses import dataclass

from gym.protocol.errors import ContractError
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import ExecResult, SandboxGoneError
from gym.swe import scripts
from gym.swe.profile import Task

TASK_REFUSED = "swe:task_refused"
"""The failure kind of a task whose image is not what the row says."""


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
        raise SandboxGoneError(f"sandbox {box.sandbox_id} died: {said(result)}")
    return result


def said(result: ExecResult) -> str:
    """The end of what a command printed, or its exit code where it printed nothing."""
    return (result.stdout + result.stderr).strip()[-500:] or f"exit {result.return_code}"


def scratch(suffix: str = "") -> str:
    """A path in a sandbox that nothing else uses."""
    return f"/tmp/gym-{secrets.token_hex(8)}{suffix}"


async def prepare(box: OwnedSandbox, task: Task, timeout: float, *, scrub: bool) -> Base:
    """Set up, hide and scrub before the agent starts. Raises ContractError if the task cannot be made safe: it is then refused."""
    await set_up(box, task, timeout)
    if task.hide:
        listed = "\n".join(task.hide).encode() + b"\n"
        _must(await run(box, scripts.HIDE, timeout, stdin=listed, workdir=task.workdir), "hiding what the grader needs")
    out = scratch()
    if scrub:
        _must(await run(box, scripts.SCRUB, timeout, workdir=task.workdir, out=out), "scrubbing the history past the base commit")
    _must(await run(box, scripts.PREPARE, timeout, workdir=task.workdir, out=out), "reading the repository")
    commit = (await box.download(f"{out}.base")).decode().strip()
    untracked = (await box.download(f"{out}.untracked")).split(b"\0")
    await run(box, 'rm -f -- "$GYM_OUT".*', timeout, out=out)
    return Base(commit, frozenset(name.decode(errors="surrogateescape") for name in untracked if name))


async def set_up(box: OwnedSandbox, task: Task, timeout: float) -> str:
    """Check what every sandbox needs and run the task's own set-up; the commit that is checked out after it.

    Raises ContractError if that cannot be done.
    """
    head = ""
    for command in ("", *task.setup):
        if command:
            _must(await run(box, command, timeout, cwd=task.workdir), f"setup command {command[:60]!r}")
        head = _must(await run(box, scripts.CHECK, timeout, workdir=task.workdir), f"reading the repository in {task.workdir}")
    return head.strip()


def _must(result: ExecResult, what: str) -> str:
    """The output of a command without which the task makes no sense."""
    if not result.ok:
        limit = " (time-out)" if result.error_type == "timeout" else ""
        raise ContractError(422, f"the task was refused: {what} failed{limit}: {said(result)}", kind=TASK_REFUSED)
    return result.stdout
