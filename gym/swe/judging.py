"""From a patch to the verdict on it: as many tries as are allowed, each in a sandbox of its own.

Invariants: never two sandboxes at once; each is stopped whatever happens; a run without any result is
held against a patch only if the gold patch gives results in the same environment.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gym.protocol.errors import ContractError
from gym.protocol.verdicts import Verdict
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import SandboxError
from gym.swe.config import SweConfig
from gym.swe.grading import TestLog, parse_log, read_log, run_tests
from gym.swe.outcomes import GradingRun, Patch, nothing_to_grade, verdict_of
from gym.swe.profile import Grade, Profile, Task
from gym.swe.sentinel import forged

StartBox = Callable[[], Awaitable[OwnedSandbox]]
"""Starts a grading sandbox of the task. Raises SandboxError."""


@dataclass
class HeldBox:
    """The one sandbox that a session has just now."""

    box: OwnedSandbox | None = None

    async def stop(self) -> None:
        """Stop the sandbox that is held; nothing if there is none."""
        if self.box is not None:
            await self.box.stop()
            self.box = None

    def must_be_empty(self) -> None:
        """Raise ContractError if the last sandbox could not be stopped: no other may start beside it."""
        if self.box is not None:
            raise ContractError(500, f"sandbox {self.box.sandbox_id} could not be stopped", kind="session_release_failed", terminal=False)

    @contextlib.asynccontextmanager
    async def fresh(self, start: StartBox) -> AsyncGenerator[OwnedSandbox]:
        """A new sandbox, stopped at the end; one that cannot be stopped stays held."""
        self.must_be_empty()
        self.box = await start()
        try:
            yield self.box
        finally:
            with contextlib.suppress(SandboxError):
                await self.stop()


@dataclass
class Judge:
    """Judges patches for one server."""

    config: SweConfig
    profile: Profile
    _sound: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Tasks whose gold patch was seen to resolve them here, by instance id, and which of their tests fail as expected then."""

    async def judge(self, held: HeldBox, start: StartBox, task: Task, patch: Patch, base: Mapping[str, Any]) -> Verdict:
        """The verdict; `base` holds the fields that every outcome has."""
        if not patch.data and not self.config.grade_empty_patch:
            return nothing_to_grade(base)
        run, attempts = GradingRun(None, problem="not run"), 0
        total = self.config.verification_total_timeout or math.inf
        began = time.monotonic()
        while attempts <= self.config.inconclusive_verification_retries and (left := total - (time.monotonic() - began)) > 0:
            run = await self._try(held, start, task, patch, min(self.config.evaluation_timeout, left))
            attempts += 1
            left = total - (time.monotonic() - began)
            if run.silent and await self._gold_resolves(held, start, task, patch, left):
                run = replace(run, grade=Grade(False, {}, task.required, fields={"failed_required_tests": list(task.required)}))
                base = {**base, "gold_control": "resolved"}
            elif run.grade is not None and (excused := _excused(run, task)):
                # A test may be written to fail as expected; code under test may not say so of itself.
                sound = await self._gold_resolves(held, start, task, patch, left)
                if sound and not excused <= self._sound[task.instance_id]:
                    run = replace(run, grade=forged(run.grade, "tests failed 'as expected' that pass with the gold patch"))
            if run.conclusive:
                break
        return verdict_of(run, {**base, "verification_attempts": attempts})

    async def _gold_resolves(self, held: HeldBox, start: StartBox, task: Task, patch: Patch, left: float) -> bool:
        """Whether the gold patch resolves the task here, so that what a run lacks is the patch's doing and not the environment's."""
        gold = Patch(task.gold_patch.encode(errors="surrogateescape"), "golden")
        if not gold.data.strip() or patch.data == gold.data or left <= 0:
            return False
        if task.instance_id not in self._sound:
            run = await self._try(held, start, task, gold, min(self.config.evaluation_timeout, left))
            if run.grade is None or not run.grade.resolved or run.timed_out:
                return False
            self._sound[task.instance_id] = _excused(run, task)
        return True

    async def _try(self, held: HeldBox, start: StartBox, task: Task, patch: Patch, timeout: float) -> GradingRun:
        """One try. A sandbox that breaks is a try without a verdict."""
        started = time.monotonic()
        timing: dict[str, Any] = {}
        setup_timeout = self.config.setup_timeout
        try:
            async with held.fresh(start) as box:
                timing = {
                    "eval_sandbox_start_time_taken": round(time.monotonic() - started, 3),
                    "verifier_sandbox_observation": {"role": "verifier", **box.observations},
                }
                sentinel = self.config.apply_anti_cheating
                found = await run_tests(box, self.profile, task, patch, setup_timeout, timeout, sentinel=sentinel)
            parsed: str | GradingRun | None = None
            if isinstance(found, TestLog) and found.evaluation.log_parser is not None:
                async with held.fresh(start) as box:
                    parsed = await parse_log(box, found, setup_timeout)
            if isinstance(found, GradingRun):
                run = found
            elif isinstance(parsed, GradingRun):
                run = parsed
            else:
                run = await asyncio.to_thread(read_log, self.profile, task, found, parsed)
        except SandboxError as error:
            run = GradingRun(None, problem=f"the grading sandbox failed: {error}", problem_kind=_kind(error))
        held.must_be_empty()
        timing["patch_verification_time_taken"] = round(time.monotonic() - started, 3)
        return replace(run, fields={**run.fields, **timing})


def _excused(run: GradingRun, task: Task) -> frozenset[str]:
    """The required tests that count as passed because they failed as expected."""
    if run.grade is None or not run.grade.resolved:
        return frozenset()
    return frozenset(test for test in task.required if run.grade.statuses.get(test) == "XFAIL")


def _kind(error: SandboxError) -> str:
    """A failure kind for a verdict; a sandbox that merely vanished is the provider's fault."""
    return "provider_unavailable" if error.kind in ("session_lost", "sandbox:file") else error.kind
