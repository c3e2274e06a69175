"""The runs of a batch, one process of `gym eval run` after the other.

Each run is a process, so that one which breaks, or fills the memory, takes no other with it. It has a process group of its
own: a signal to us is passed on once, and the run ends as it always does, with its account. If we are killed, it is told to end.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import orjson

from gym.config.errors import UserError
from gym.parenthood import ending_with_us
from gym.rollouts import batch_summary
from gym.rollouts.batch import OUTPUT_NAME, BatchRun
from gym.rollouts.batch_summary import RunEnd
from gym.rollouts.lock import run_lock

Say = Callable[[str], None]

_PASSED_ON = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}


class Batch:
    """Runs with a folder for all their output. `gym` is the command line that stands for `gym` here."""

    def __init__(self, runs: Sequence[BatchRun], folder: Path, gym: Sequence[str], *, overwrite: bool = False) -> None:
        self._runs, self._folder, self._gym = runs, folder, gym
        self._mode = "--overwrite" if overwrite else "--resume"
        self._current: subprocess.Popen[bytes] | None = None
        self.interrupted = False

    def command(self, run: BatchRun) -> list[str]:
        """The arguments of `gym` for one run."""
        return ["eval", "run", *run.arguments(), "--output", str(self.output(run)), self._mode]

    def output(self, run: BatchRun) -> Path:
        """Where one run's rollouts go."""
        return self._folder / run.name / OUTPUT_NAME

    def problems(self) -> dict[str, str]:
        """What is wrong with which run, as far as it can be known before anything is started."""
        found: dict[str, str] = {}
        with self._passing_signals_on():
            for run in self._runs:
                process = self._begin([*self.command(run), "--dry-run"], stderr=subprocess.PIPE)
                _, said = process.communicate()
                if self.interrupted:
                    break
                if process.returncode:
                    found[run.name] = said.decode(errors="replace").strip() or f"ended with exit code {process.returncode}"
        return found

    def run(self, say: Say) -> list[RunEnd]:
        """Run them all, and write the summary after each; an interrupted one is the last. Raises UserError if it cannot be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the folder of --output {self._folder} cannot be made: {error.strerror or error}") from None
        ends = [RunEnd(run.name, str(self.output(run))) for run in self._runs]
        with run_lock(self._folder / "batch.lock"), self._passing_signals_on():
            for number, run in enumerate(self._runs):
                if self.interrupted:
                    break
                say(f"== {number + 1} of {len(self._runs)}: {run.name}")
                ends[number] = self._one(run)
                self._write(ends)
            self._write(ends)
        return ends

    def _one(self, run: BatchRun) -> RunEnd:
        began = time.monotonic()
        process = self._begin([*self.command(run), "--json"], stderr=None)
        told, _ = process.communicate()
        return batch_summary.ended(run.name, self.output(run), process.returncode, _records(told), time.monotonic() - began)

    def _begin(self, arguments: Sequence[str], *, stderr: int | None) -> "subprocess.Popen[bytes]":
        self._current = subprocess.Popen(
            [*self._gym, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,
            preexec_fn=ending_with_us(signal.SIGTERM),
        )
        if self.interrupted:  # by a signal that came while it was being made
            self._current.send_signal(signal.SIGINT)
        return self._current

    def _write(self, ends: list[RunEnd]) -> None:
        try:
            batch_summary.write(self._folder, ends, interrupted=self.interrupted)
        except OSError as error:
            raise UserError(f"the summary in {self._folder} cannot be written: {error.strerror or error}") from None

    @contextmanager
    def _passing_signals_on(self) -> Generator[None]:
        def pass_on(number: int, _frame: FrameType | None) -> None:
            self.interrupted = True
            if self._current is not None and self._current.poll() is None:
                self._current.send_signal(_PASSED_ON[signal.Signals(number)])

        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _records(told: bytes) -> list[dict[str, Any]]:
    """The records among what a run printed; a line that is none is left out."""
    records: list[dict[str, Any]] = []
    for line in told.splitlines():
        try:
            value: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            records.append(cast("dict[str, Any]", value))
    return records
