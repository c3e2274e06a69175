"""Judging a patch: apply it in a fresh sandbox, run the tests there, read what they said.

Whoever calls owns the sandboxes. Everything that a run can show ends up in a `GradingRun`; what
follows from it is said in `outcomes`.
"""

import posixpath
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gym.protocol.errors import ContractError
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import ExecResult, SandboxFileError
from gym.swe import scripts
from gym.swe.boxes import run, said, scratch, set_up
from gym.swe.outcomes import GradingRun, Patch
from gym.swe.profile import Evaluation, Grade, Profile, Task
from gym.swe.sentinel import Sentinel, evidence, forged, plant, without_sentinel

_LOG_BYTES = 64 * 2**20
_KILLED = 128
_NO_NETWORK = re.compile(
    r"temporary failure in name resolution|could not resolve host|name or service not known|no such host|EAI_AGAIN|ENOTFOUND", re.IGNORECASE
)


@dataclass(frozen=True)
class TestLog:
    """What a test run printed, and how it ended; `evaluation` is the one with a nonce in its markers."""

    __test__ = False
    result: ExecResult
    evaluation: Evaluation
    sentinel: Sentinel | None
    fields: Mapping[str, Any]


async def run_tests(
    box: OwnedSandbox, profile: Profile, task: Task, patch: Patch, setup_timeout: float, timeout: float, *, sentinel: bool = True
) -> TestLog | GradingRun:
    """Apply the patch and run the tests. A GradingRun says why it did not come to that. Raises SandboxError if the sandbox died before."""
    try:
        head = await set_up(box, task, setup_timeout)
    except ContractError as error:  # the task sandbox was well, so trying again may help
        return GradingRun(None, problem=error.message)
    if patch.data and (refused := await _apply(box, task, patch, setup_timeout)) is not None:
        return refused
    evaluation, planted = with_nonce(profile.evaluation(task, head), sentinel=sentinel)
    if planted is not None:
        await box.upload(posixpath.join(task.workdir, planted.path), planted.source)
    runner = scripts.RUN_TESTS if evaluation.log_parser is None else scripts.RUN_TESTS_APART
    started = time.monotonic()
    result = await box.exec(
        runner, timeout_s=timeout, cwd=task.workdir, max_output_bytes=_LOG_BYTES, stdin=evaluation.script.encode(errors="surrogateescape")
    )
    seconds = {"test_time_s": round(time.monotonic() - started, 3), "test_exit_code": result.return_code}
    if result.error_type == "sandbox":
        problem = f"the grading sandbox {box.sandbox_id} died while its tests ran"
        return GradingRun(True, output=result.stdout, problem=problem, problem_kind="provider_unavailable", fields=seconds)
    return TestLog(result, evaluation, planted, seconds)


async def _apply(box: OwnedSandbox, task: Task, patch: Patch, timeout: float) -> GradingRun | None:
    """Apply the patch; what there is to say if it could not be."""
    path = scratch(".diff")
    await box.upload(path, patch.data)
    applied = await run(box, scripts.APPLY, timeout, workdir=task.workdir, patch=path)
    if applied.error_type == "timeout" or applied.return_code not in (0, 1):
        return GradingRun(None, problem=f"it could not be tried whether the patch applies: {said(applied)}")
    return GradingRun(False, output=applied.stdout + applied.stderr) if applied.return_code == 1 else None


def with_nonce(evaluation: Evaluation, *, sentinel: bool) -> tuple[Evaluation, Sentinel | None]:
    """The evaluation with markers that nobody can know beforehand, and a sentinel among its tests where there is a place for one."""
    nonce = secrets.token_hex(8)
    planted = None
    if sentinel:
        evaluation, planted = plant(evaluation, nonce)
    start, end = f"{evaluation.start_marker} {nonce}", f"{evaluation.end_marker} {nonce}"
    script = evaluation.script.replace(evaluation.start_marker, start).replace(evaluation.end_marker, end)
    return replace(evaluation, script=script, start_marker=start, end_marker=end), planted


async def parse_log(box: OwnedSandbox, log: TestLog, timeout: float) -> str | GradingRun:
    """Have the data set's own parser read the log, in a sandbox that the code under test never saw; its result, as text.

    Raises SandboxError if the sandbox died.
    """
    parser = log.evaluation.log_parser
    assert parser is not None
    folder = scratch()
    cut = (cut_out(stream, log.evaluation).between for stream in (log.result.stdout, log.result.stderr))
    for name, content in zip(("parser.py", "stdout.log", "stderr.log"), (parser, *cut), strict=True):
        await box.upload(f"{folder}/{name}", content.encode(errors="surrogateescape"))
    result = await run(box, scripts.PARSE, timeout, folder=folder)
    try:
        if result.ok:
            return (await box.download(f"{folder}/result", max_bytes=_LOG_BYTES)).decode(errors="replace")
        problem = said(result)
    except SandboxFileError as error:
        problem = str(error)
    timed_out, shown = log.result.error_type == "timeout", log.result.stdout
    return GradingRun(True, None, timed_out, shown, f"the log parser failed: {problem}", fields=log.fields)


@dataclass(frozen=True)
class Cut:
    """A stream at its markers. `started` and `ended` say which of them were there."""

    before: str
    between: str
    started: bool
    ended: bool


def cut_out(stream: str, evaluation: Evaluation) -> Cut:
    """Cut a stream at the evaluation's markers."""
    before, started, rest = stream.partition(evaluation.start_marker)
    between, ended, _ = rest.partition(evaluation.end_marker)
    return Cut(before, between, bool(started), bool(ended))


def read_log(profile: Profile, task: Task, log: TestLog, parsed: str | None = None) -> GradingRun:
    """What a test run allows to be said. `parsed` is what the data set's own parser made of the log, where it has one."""
    result, timed_out = log.result, log.result.error_type == "timeout"
    early = " before the time-out" if timed_out else ""
    cut = cut_out(result.stdout, log.evaluation)
    shown = cut.between if cut.started else cut.before
    if log.evaluation.log_parser is not None:
        shown += cut_out(result.stderr, log.evaluation).between

    def nothing(problem: str) -> GradingRun:
        return GradingRun(True, None, timed_out, shown, problem, fields=log.fields)

    first = cut.before + (result.stderr.partition(log.evaluation.start_marker)[0] if log.evaluation.log_parser is not None else "")
    refused = next((line for line in first.splitlines() if _test_patch_refused(line)), None)
    if refused is not None:
        shown = result.stdout
        return nothing(f"the test patch did not apply: {refused[:200]}")
    if not cut.started:
        return nothing("the tests did not start" + (early or f" (exit {result.return_code})"))
    try:
        grade = _grade(profile, task, log, cut.between if parsed is None else parsed)
    except Exception as error:  # parsers are not ours, and read what a model's code printed
        return nothing(f"the output could not be read: {type(error).__name__}: {str(error)[:200]}")
    if isinstance(grade, str):
        return nothing(grade)
    if not cut.ended and not timed_out and not grade.definitely_failed:  # a script under `set -e` ends with the tests that fail
        return nothing(f"the tests ended without their end marker (exit {result.return_code})")
    if not grade.statuses and not _could_not_run(log, cut, shown):
        return nothing("no test result could be read from the output" + early)
    if result.truncated and not grade.resolved and not grade.definitely_failed:
        return nothing(f"the tests printed more than {_LOG_BYTES // 2**20} MiB, and a required test is not in what is left")
    return GradingRun(True, grade, timed_out, shown, fields=log.fields)


def _grade(profile: Profile, task: Task, log: TestLog, output: str) -> Grade | str:
    """The grade; a pass is believed only with the sentinel's evidence. A string says why nothing can be said."""
    if log.sentinel is None:
        return profile.grade(task, output)
    grade = profile.grade(task, without_sentinel(output, log.sentinel))
    if not grade.resolved or log.result.error_type == "timeout":
        return grade
    found = evidence(output, log.sentinel)
    if found is None:
        return "the tests seem to pass, but a test of ours that must fail was not seen to fail among them"
    if found.turned:
        return forged(grade, "a test that must fail was reported as passed")
    if not profile.grade(task, found.summaries).resolved:
        return forged(grade, "results were printed that pytest's own summary does not have")
    return grade


def _could_not_run(log: TestLog, cut: Cut, shown: str) -> bool:
    """Whether a run without any result speaks against the patch: it came to its end, and the data set's own parser found nothing.

    That is what a patch that does not compile gives, and must not be masked. A pytest run says so itself, by
    a status. Not so where something was killed, or the output tells of a network that is not there.
    """
    if log.evaluation.log_parser is None or not cut.ended or log.result.return_code > _KILLED:
        return False
    return bool(shown.strip()) and _NO_NETWORK.search(shown) is None


def _test_patch_refused(line: str) -> bool:
    """Whether a line is git's word that a patch does not fit."""
    return line.startswith("error: ") and (
        line.startswith(("error: patch failed:", "error: corrupt patch"))
        or line.rstrip().endswith(("patch does not apply", "already exists in working directory", "No such file or directory"))
    )
