"""One harness in one borrowed sandbox: started once, bounded, and ended for certain.

Invariants: start and stop race for one claim, a folder that only one of them can make, so that a start that comes late finds
itself stopped. Everything that the harness starts carries a marker, however it detaches itself, and `end` returns only when
nothing that carries it is left. Where that cannot be known `end` says so, and nothing may be verified.
What the harness prints is written to a file of ours as it comes, so that a run that is cut short leaves its evidence.
Left out: a process that drops its environment and outlives its parents. It ends with the sandbox.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import join, quote

from gym.harness.adapter import STDOUT, Ending, Launch
from gym.protocol.errors import ContractError
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.spec import ExecResult, SandboxError, SandboxStatus
from gym.sandbox.sweeping import SWEEP
from gym.servers.sandbox_agents import run_in, sandbox_lost

log = logging.getLogger("gym.harness")

MARKER = "GYM_HARNESS_ID"
SESSIONS = "/tmp/nemo-gym-sessions"
_STOPPED_CODE = 97
_SWEEP_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_ROOM_KIB = 16 * 1024
_STDERR_BYTES = 64 * 1024

_PREPARE = 'umask 077; mkdir -p "$GYM_SESSION/home" && cat > "$GYM_SESSION/prompt"'


class HarnessRun:
    """`title` is the harness's name for people; `evidence` is the folder of ours that takes what it prints and keeps.

    `sessions` is the folder in the sandbox below which the session's own is made.
    """

    def __init__(self, title: str, box: BorrowedSandbox, evidence: Path, max_bytes: int, sessions: str = SESSIONS) -> None:
        self.box, self.evidence, self._stdout = box, evidence, evidence / STDOUT
        self._title, self._max_bytes = title, max_bytes
        self._id = secrets.token_hex(16)
        self.folder = f"{sessions}/{self._id}"
        """The session's folder in the sandbox, outside of the work tree."""
        self.launched = False
        self.ending: Ending | None = None
        """How it ended, once it did by itself or by our limits."""
        self.ended = False
        """Whether it is certain that nothing of it runs."""
        self._doubted = False

    async def prepare(self, prompt: str, timeout: float) -> None:
        """Make the session's folder."""
        done = await run_in(self.box, _PREPARE, timeout, stdin=prompt.encode(), env={"GYM_SESSION": self.folder})
        if not done.ok:
            reason = f"the session folder of {self._title} could not be made: {done.stderr.strip()[-300:]}"
            raise ContractError(503, reason, kind="provider_unavailable", terminal=False)

    async def launch(self, launch: Launch, prelude: str, timeout: float) -> Ending:
        """Run the harness to its end or to `timeout` seconds. Raises ContractError where it is not known how it ended."""
        lines = [
            f'mkdir "$GYM_SESSION/claim" || exit {_STOPPED_CODE}',
            f"PATH=$PATH:{quote(launch.path)}; export PATH",  # last, so that the project's own programs come first
            prelude,
            f'exec {join(launch.argv)} < "$GYM_SESSION/prompt"',
        ]
        env = {**launch.env, "GYM_SESSION": self.folder, MARKER: self._id}
        self.launched = True
        began = time.monotonic()
        try:
            result = await self._watched("\n".join(lines), env, timeout)
        except SandboxError as error:
            await self.confirm()
            raise sandbox_lost(error.kind, f"{self._title} was stopped: {error}") from error
        seconds = round(time.monotonic() - began, 3)
        if result is None:
            self.ending = Ending(-1, seconds, stopped="transcript_limit")
            return self.ending
        if result.error_type == "sandbox":
            await self.confirm()  # says so where it cannot
            raise sandbox_lost(result.failure_kind or "session_lost", f"how {self._title} ended was lost: {result.stderr.strip()[-300:]}")
        if not result.cleanup_confirmed:
            await self.confirm()
        ending = Ending(result.return_code, seconds, result.stderr, oom_killed=result.oom_killed)
        self.ending = replace(ending, stopped="agent_timeout") if result.error_type == "timeout" else ending
        return self.ending

    async def end(self) -> None:
        """Make certain that nothing of the harness runs, nor will. Raises ContractError (500) where that cannot be known.

        The first call that finds a sandbox dead fails, since the harness may have been in the midst of anything; a later one takes
        the provider's word for it.
        """
        try:
            await self.confirm()
        except ContractError:
            doubted, self._doubted = self._doubted, True
            if not doubted or await self.box.status() is not SandboxStatus.STOPPED:
                raise
            self.ended = True

    async def confirm(self) -> None:
        """As `end`, for the run itself: a sandbox that is dead by then leaves it open what became of it."""
        if self.ended or not self.launched:
            return
        try:
            self.ended = await self._swept()
        except SandboxError:
            self.ended = False
        if not self.ended:
            reason = f"{self._title} launch outcome is unknown; cannot confirm termination"
            raise ContractError(500, reason, kind="environment_server_failed", terminal=False)

    async def disk_full(self) -> bool:
        """Whether there is hardly any room where the harness keeps its files; some may have come free as it ended."""
        try:
            asked = await self.box.exec(f"df -Pk {quote(self.folder)}", cwd="/", timeout_s=_SWEEP_SECONDS)
            return int(asked.stdout.splitlines()[-1].split()[3]) < _ROOM_KIB
        except (SandboxError, ValueError, IndexError):
            return False

    async def keep(self, names: tuple[str, ...]) -> None:
        """Bring files of the session's home into the evidence folder, as far as they are there and not too long."""
        for name in names:
            try:
                data = await self.box.download(f"{self.folder}/home/{name}", max_bytes=self._max_bytes)
            except SandboxError as error:
                log.info("%s of %s was not kept: %s", name, self._title, error)
            else:
                await asyncio.to_thread((self.evidence / Path(name).name).write_bytes, data)

    async def remove(self) -> None:
        """Remove the session's folder, as far as that is possible; the sandbox goes with its owner anyway."""
        try:
            await self.box.exec(f"rm -rf {quote(self.folder)}", cwd="/", timeout_s=_SWEEP_SECONDS)
        except SandboxError:
            return

    async def _swept(self) -> bool:
        claim = f"mkdir -p {quote(self.folder)}; mkdir {quote(self.folder)}/claim 2>/dev/null"
        command = f"{claim}\nset -- {MARKER}={self._id}\n{SWEEP}"
        # Root may be kept from reading what others' processes carry, and others from ending root's.
        users = [None, "0"] if self.box.capabilities.users else [None]
        swept = [await self.box.exec(command, cwd="/", user=user, timeout_s=_SWEEP_SECONDS) for user in users]
        return all(result.ok for result in swept)

    async def _watched(self, command: str, env: Mapping[str, str], timeout: float) -> ExecResult | None:
        """What came of the command; None if it was stopped for printing too much."""
        running = asyncio.ensure_future(
            self.box.exec(command, env=env, timeout_s=timeout, max_output_bytes=_STDERR_BYTES, output_file=self._stdout)
        )
        try:
            while not (await asyncio.wait({running}, timeout=_LOOK_SECONDS))[0]:
                if self._stdout.exists() and self._stdout.stat().st_size > self._max_bytes:
                    return None
            return running.result()
        finally:
            if not running.done():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
