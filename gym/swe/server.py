"""The resources server of SWE tasks: seed a task sandbox and lend it, then judge the patch in a fresh one.

Invariants: never two sandboxes at once for a session; what is asked of a provider is registered for
release first; the agent never gets a grader's file, and the gold patch only where
`expose_gold_to` says so; a verdict is a zero only on evidence about the patch.
"""

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gym.protocol.errors import ContractError
from gym.protocol.resources import BaseVerifyRequest
from gym.protocol.verdicts import LOST_SESSION, Masked, Verdict
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership, Role
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxSpec
from gym.servers import ResourcesServer, ResourcesSession, ServerContext, tool
from gym.swe.boxes import Base, prepare
from gym.swe.capture import CaptureError, capture, cleaned
from gym.swe.config import SweConfig, cpu_environment
from gym.swe.judging import HeldBox, Judge
from gym.swe.outcomes import Patch, stored_patch
from gym.swe.profile import Profile, Task


@dataclass
class TaskState:
    """What a session holds: its task, the one sandbox it has just now, and the patch once captured."""

    task: Task
    held: HeldBox = field(default_factory=HeldBox)
    base: Base | None = None
    patch: Patch | None = None
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """What every verdict on the session says: about the task sandbox, and how long things took."""


class SweServer(ResourcesServer[TaskState]):
    """Subclass this with a `profile` to serve an SWE data set."""

    config: SweConfig  # pyright: ignore[reportIncompatibleVariableOverride] - set once, by the constructor
    profile: ClassVar[Profile]
    reverify_mode = "stateless"

    def __init__(self, config: SweConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self._provider: Provider | None = None
        self._judging = Judge(config, self.profile)

    async def start(self) -> None:
        """Make the provider, and remove the sandboxes of a predecessor that died."""
        name = self.config.sandbox_provider
        block = self.context.sandbox_providers.get(name)
        if block is None:
            known = ", ".join(sorted(self.context.sandbox_providers)) or "none"
            raise ValueError(f"sandbox_provider {name!r} names no top-level provider block (there are: {known})")
        self._provider = provider_from_block(name, block)
        with contextlib.suppress(SandboxError):  # an engine that does not answer yet has nothing of ours to remove
            for sandbox_id in await self._provider.sweep(run_id=self.context.run_id, instance=self.context.instance):
                self.context.leases.drop(sandbox_id)

    async def stop(self) -> None:
        """Release every session, then the provider."""
        await super().stop()
        if self._provider is not None:
            await self._provider.aclose()

    @property
    def provider(self) -> Provider:
        """The provider that sandboxes are made with."""
        assert self._provider is not None
        return self._provider

    async def seed(self, session: ResourcesSession[TaskState], task_data: dict[str, Any]) -> None:
        """Start the task sandbox with no row data inside, make it safe, and lend it."""
        task = self._task(task_data)
        if session.task_id is not None and session.task_id.task_id != task.instance_id:
            raise ContractError(422, f"the task is {session.task_id.task_id!r}, but its row is {task.instance_id!r}")
        state = session.state = TaskState(task)
        if self.config.is_verifying_golden_patch:
            state.patch = Patch(task.gold_patch.encode(errors="surrogateescape"), "golden")
            return
        session.on_release("its sandbox", state.held.stop)
        with _as_contract_error():
            started = time.monotonic()
            box = state.held.box = await self._start_box(session, task, "task")
            made = time.monotonic()
            state.base = await prepare(box, task, self.config.setup_timeout, scrub=self.config.apply_anti_cheating)
            state.fields = {
                "task_sandbox_observation": {"role": "task", **box.observations},
                "task_sandbox_start_time_taken": round(made - started, 3),
                "task_preparation_time_taken": round(time.monotonic() - made, 3),
            }
            session.sandbox_access = box.serialize(self.config.sandbox_provider)

    @tool
    async def gold_patch(self, session: ResourcesSession[TaskState]) -> dict[str, str]:
        """The reference solution, for agents that this server's configuration names in `expose_gold_to`."""
        if not self.config.expose_gold_to:
            raise ContractError(403, f"{self.context.instance} shows its gold patches to nobody (expose_gold_to)")
        gold = session.state.task.gold_patch
        if not gold.strip():
            without = f"the row of {session.state.task.instance_id} has no gold patch"
            raise ContractError(422, without, kind="agent_run_error", terminal=True)
        return {"patch": gold}

    async def verify(self, session: ResourcesSession[TaskState] | None, request: BaseVerifyRequest) -> Verdict:
        """Capture the patch, stop the task sandbox, grade in a fresh one."""
        if session is None:
            return await self._reverify(request)
        state = session.state
        if state.patch is None:
            lost = await self._capture(state)
            if lost is not None:
                return lost
        assert state.patch is not None
        return await self._judge(session, state, state.patch)

    def lost_fields(self, request: BaseVerifyRequest) -> dict[str, Any]:
        """What every SWE row has."""
        return {"instance_id": request.task_data().get("instance_id"), "resolved": False}

    async def _reverify(self, request: BaseVerifyRequest) -> Verdict:
        """Judge a stored patch, with no session: the row must carry it as `model_patch`."""
        row = request.task_data()
        task = self._task(row)
        if self.config.is_verifying_golden_patch:
            patch = Patch(task.gold_patch.encode(errors="surrogateescape"), "golden")
        elif (stored := stored_patch(row)) is not None:
            # What other tools store may be no diff of git's, and then cannot be told apart by file.
            patch = cleaned(stored, task, "stored") if b"diff --git " in stored else Patch(stored, "stored" if stored else "none")
        else:
            reason = "no session, and the row carries no model_patch to judge"
            return Masked("session_lost", reason, {**self.lost_fields(request), **LOST_SESSION})
        state = TaskState(task)
        try:
            return await self._judge(None, state, patch)
        finally:
            await state.held.stop()

    async def _capture(self, state: TaskState) -> Masked | None:
        """Take the patch and stop the task sandbox. The answer is a verdict only if there is no patch to judge."""
        fields = {"instance_id": state.task.instance_id, "resolved": False, **state.fields, **LOST_SESSION}
        if state.held.box is None or state.base is None:
            return Masked("session_lost", "the task sandbox is gone, and with it the patch", fields)
        started = time.monotonic()
        try:
            patch = await capture(state.held.box, state.task, state.base, self.config.patch_capture_mode, self.config.setup_timeout)
        except SandboxError as error:
            return Masked("session_lost", f"the patch could not be captured: {error}", fields)
        except CaptureError as error:
            fields = {name: value for name, value in fields.items() if name not in LOST_SESSION}
            return Masked("verifier_error", f"the patch could not be captured: {error}", {**fields, "evaluation_completed": False})
        state.fields["patch_capture_time_taken"] = round(time.monotonic() - started, 3)
        with _as_contract_error():
            await state.held.stop()
        state.patch = patch
        return None

    async def _judge(self, session: ResourcesSession[TaskState] | None, state: TaskState, patch: Patch) -> Verdict:
        shown = patch.row(self.config.include_model_patch_in_response)
        base: dict[str, Any] = {"instance_id": state.task.instance_id, **shown, **state.fields}
        return await self._judging.judge(state.held, lambda: self._start_box(session, state.task, "verifier"), state.task, patch, base)

    async def _start_box(self, session: ResourcesSession[TaskState] | None, task: Task, role: Role) -> OwnedSandbox:
        asked = self.config.sandbox_config
        env = {**(cpu_environment(asked.resources.cpu) if self.config.derive_cpu_env else {}), **asked.env}
        spec: SandboxSpec = asked.model_copy(update={"image": task.image, "workdir": task.workdir, "env": env})
        ownership = Ownership(
            run_id=self.context.run_id,
            instance=self.context.instance,
            role=role,
            episode_id=session.episode_id.capture_key if session is not None and session.episode_id is not None else None,
            session_id=session.id if session is not None else None,
        )
        return await OwnedSandbox.start(self.provider, spec, ownership, leases=self.context.leases.at(self.config.sandbox_provider))

    def _task(self, row: dict[str, Any]) -> Task:
        try:
            task = self.profile.task(row, self.config.image_template)
            self.profile.evaluation(task, "HEAD")  # a row that cannot be tested is refused before an agent works on it
            return task
        except ValueError as error:
            raise ContractError(422, f"the row is not a task of {self.context.instance}: {error}") from error


@contextlib.contextmanager
def _as_contract_error() -> Generator[None]:
    """A sandbox that fails is the provider's trouble (503, to be tried again), but for a spec that can never be met (422)."""
    try:
        yield
    except SandboxError as error:
        terminal = error.kind == "protocol_violation"
        raise ContractError(422 if terminal else 503, str(error), kind=error.kind, terminal=terminal) from error
