"""Runs one command in one container: bounded output, time-out, cancellation, and telling a dead box from a failed command.

Invariant: when `run` returns or raises, the command has ended, or has been killed inside the
container, or the outcome says that this could not be confirmed. Starting is limited, running
is not: a long agent run must not keep a short command waiting.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gym.sandbox.cleanup import finish
from gym.sandbox.output import BoundedOutput, output, take_the_rest
from gym.sandbox.providers.docker.engine import Engine, EngineError, name_in_path
from gym.sandbox.providers.docker.memory import MemoryWatch
from gym.sandbox.providers.docker.streams import Hijacked
from gym.sandbox.spec import SANDBOX_FAILED_CODE, TIMEOUT_CODE, SandboxError
from gym.sandbox.sweeping import MARKER, sweep_argv

log = logging.getLogger(__name__)

_KILL_BOUND_S = 30.0
_SWEEP_BOUND_S = 12.0
_PROBE_BOUND_S = 10.0
_SETTLE_S = 20.0
"""How far the engine's word on a command may lag behind its streams, on a machine that is busy."""

_FAILURES = 10
_KILLED_CODE = 137
_LONGEST_POLL_S = 2.0
_ROOT = ("0", "root", "0:0", "root:root")


@dataclass(frozen=True)
class Command:
    """What to run. `argv` is executed as it is, without a shell of ours around it."""

    container: str
    argv: list[str]
    timeout_s: float
    limit: int
    """Bytes kept of stdout and of stderr each."""
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str | None = None
    stdin: bytes | None = None
    output_file: Path | None = None
    """Takes all of stdout."""


@dataclass(frozen=True)
class Outcome:
    """What came of it. `said` is our own word on it, for the end of stderr."""

    stdout: BoundedOutput
    stderr: BoundedOutput
    code: int
    error_type: Literal["timeout", "sandbox"] | None = None
    said: str = ""
    cleanup_confirmed: bool = True
    oom_killed: bool = False

    @property
    def truncated(self) -> bool:
        """Whether some of the output was left out."""
        return self.stdout.truncated or self.stderr.truncated

    async def reason(self) -> str:
        """What stderr and we say."""
        text = await self.stderr.text()
        return text + ("\n" if text and self.said else "") + self.said


class Commands:
    """Commands through one engine. `alive` says whether a container runs."""

    def __init__(self, engine: Engine, alive: Callable[[str], Awaitable[bool]], memory: MemoryWatch, concurrency: int) -> None:
        self._engine = engine
        self._memory = memory
        self._alive = alive
        self._starts = asyncio.Semaphore(concurrency)

    async def run(self, command: Command) -> Outcome:
        """Run `command` to its end, its time-out or a cancellation. A box that fails is an outcome, not an exception.

        Raises SandboxError where the `output_file` cannot be written; the command is ended.
        """
        before = self._memory.kills(command.container)
        async with output(command.limit, command.output_file) as stdout:
            outcome = await self._run(command, stdout, BoundedOutput(command.limit))
        died = outcome.error_type == "sandbox"
        killed = await self._memory.killed(command.container, before, probable=died or outcome.code == _KILLED_CODE)
        if not killed and not (died and self._memory.ended(command.container)):
            return outcome
        said = f"{outcome.said}: it ran out of memory" if died else outcome.said
        return replace(outcome, oom_killed=True, said=said)

    async def _run(self, command: Command, stdout: BoundedOutput, stderr: BoundedOutput) -> Outcome:
        mark = secrets.token_hex(16)
        try:
            async with self._starts:
                exec_id, stream = await self._start_shielded(command, mark, stdout, stderr)
        except EngineError as error:
            return _box_failed(str(error), stdout, stderr)
        try:
            try:
                async with asyncio.timeout(command.timeout_s):
                    await stdout.during(self._attend(exec_id, stream, command.stdin, stdout, stderr))
            except TimeoutError:
                confirmed = await self._kill_bounded(command, mark)
                await take_the_rest({stream.ended}, stdout, stderr)
                return Outcome(stdout, stderr, TIMEOUT_CODE, "timeout", f"[timed out after {command.timeout_s:g} s]\n", confirmed)
            except BaseException:
                await self._kill_bounded(command, mark)
                raise
            return await self._ended(command, mark, exec_id, stdout, stderr)
        finally:
            stream.close()

    async def _start_shielded(self, command: Command, mark: str, stdout: BoundedOutput, stderr: BoundedOutput) -> tuple[str, Hijacked]:
        starting = asyncio.ensure_future(self._start(command, mark, stdout, stderr))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The engine may already have begun: only its answer makes sure that the sweep does not come too early.
            with suppress(TimeoutError):
                await finish(self._abandon(starting, command, mark), _KILL_BOUND_S)
            raise

    async def _abandon(self, starting: "asyncio.Future[tuple[str, Hijacked]]", command: Command, mark: str) -> None:
        try:
            _, stream = await starting
        except SandboxError:
            return
        stream.close()
        await self._kill(command, mark)

    async def _start(self, command: Command, mark: str, stdout: BoundedOutput, stderr: BoundedOutput) -> tuple[str, Hijacked]:
        body: dict[str, Any] = {
            "Cmd": command.argv,
            "AttachStdin": bool(command.stdin),
            "AttachStdout": True,
            "AttachStderr": True,
            "Env": [*(f"{k}={v}" for k, v in command.env.items()), f"{MARKER}={mark}"],
        }
        if command.cwd is not None:
            body["WorkingDir"] = command.cwd
        if command.user is not None:
            body["User"] = command.user
        made = await self._engine.json("POST", f"/containers/{name_in_path(command.container)}/exec", body=body)
        exec_id = str(made["Id"])
        return exec_id, await self._engine.hijack(f"/exec/{exec_id}/start", {"Detach": False, "Tty": False}, stdout, stderr)

    async def _attend(self, exec_id: str, stream: Hijacked, stdin: bytes | None, stdout: BoundedOutput, stderr: BoundedOutput) -> None:
        """Return when the command has ended, even while a child that it left behind holds its output open."""
        writing = asyncio.ensure_future(stream.write(stdin)) if stdin else None
        try:
            wait = 0.25
            while not (await asyncio.wait({stream.ended}, timeout=wait))[0]:
                if not await self._running(exec_id):
                    await take_the_rest({stream.ended}, stdout, stderr)
                    return
                wait = min(wait * 1.5, _LONGEST_POLL_S)
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    async def _running(self, exec_id: str) -> bool:
        try:
            return bool((await self._engine.json("GET", f"/exec/{exec_id}/json")).get("Running"))
        except EngineError as error:
            return error.status != 404  # an engine that hiccups is asked again; the stream breaks if it is really gone

    async def _ended(self, command: Command, mark: str, exec_id: str, stdout: BoundedOutput, stderr: BoundedOutput) -> Outcome:
        code = await self._exit_code(exec_id)
        # A kill of the container looks like a killed command: one probe tells.
        if (code is None or code in (126, _KILLED_CODE)) and not await self._still_alive(command.container):
            return _box_failed(f"sandbox {command.container} ended while a command ran in it", stdout, stderr)
        if code is None:  # the connection broke, and the command may still run
            confirmed = await self._kill_bounded(command, mark)
            why = f"the engine lost the command's exit code in sandbox {command.container}"
            return replace(_box_failed(why, stdout, stderr), cleanup_confirmed=confirmed)
        return Outcome(stdout, stderr, code)

    async def _still_alive(self, container: str) -> bool:
        """Whether the container outlived a command that ended oddly. The engine's own state lags behind a kill; a new command does not."""
        if await self._probe(Command(container, ["/bin/sh", "-c", ":"], _PROBE_BOUND_S, 1024, cwd="/")) == 0:
            return True
        for _ in range(5):  # no shell any more, or no box: its state tells once the engine has noticed
            if not await self._alive(container):
                return False
            await asyncio.sleep(0.2)
        return True

    async def _exit_code(self, exec_id: str) -> int | None:
        """The exit code of a command whose streams have ended. None: the engine knows none, or did not say in time."""
        failures = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                wait = 0.01
                while failures < _FAILURES:
                    try:
                        state = await self._engine.json("GET", f"/exec/{exec_id}/json")
                    except EngineError as error:
                        if error.status == 404:
                            return None
                        failures += 1
                    else:
                        if not state.get("Running"):
                            code = state.get("ExitCode")
                            return code if isinstance(code, int) else None
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, 0.5)
        return None

    async def _kill_bounded(self, command: Command, mark: str) -> bool:
        try:
            return await finish(self._kill(command, mark), _KILL_BOUND_S)
        except TimeoutError:
            return False

    async def _kill(self, command: Command, mark: str) -> bool:
        """End the command's tree; whether it is certain that nobody of it is left."""
        users = [command.user] if command.user in _ROOT else [command.user, "0"]
        confirmed = True
        for user in users:
            confirmed = await self._sweep(command.container, mark, user) and confirmed
        if not confirmed and not await self._alive(command.container):
            return True
        if not confirmed:
            log.warning("could not confirm that a command's processes in sandbox %s have ended", command.container)
        return confirmed

    async def _sweep(self, container: str, mark: str, user: str | None) -> bool:
        return await self._probe(Command(container, sweep_argv(f"{MARKER}={mark}"), _SWEEP_BOUND_S, 4096, user=user, cwd="/")) == 0

    async def _probe(self, command: Command) -> int | None:
        """The exit code of a short command of our own, or None; it waits in no queue and is not killed."""
        stream: Hijacked | None = None
        try:
            async with asyncio.timeout(command.timeout_s):
                exec_id, stream = await self._start(command, "probe", BoundedOutput(command.limit), BoundedOutput(command.limit))
                await asyncio.shield(stream.ended)
            return await self._exit_code(exec_id)
        except (TimeoutError, SandboxError):
            return None
        finally:
            if stream is not None:
                stream.close()


def _box_failed(why: str, stdout: BoundedOutput, stderr: BoundedOutput) -> Outcome:
    return Outcome(stdout, stderr, SANDBOX_FAILED_CODE, "sandbox", why)
