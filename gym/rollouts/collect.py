"""The collector: one run from a file of rows to the files beside its output.

Order: take the lock; read and check all rows; only then replace what an overwritten run left;
write the tasks; dispatch; write coverage, metrics and manifest. However the run ends (finished,
interrupted, full disk, refused credentials) the account is written, and every expected rollout is
measured, masked, unscored, failed or owed in it. A run that is resumed begins with what `resume` reads back.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from gym.config.errors import UserError, printable
from gym.protocol.rollouts import Outcome
from gym.rollouts.coverage import Coverage, coverage_of
from gym.rollouts.dispatch import Dispatcher, Window, backoff
from gym.rollouts.feed import Feed, Job
from gym.rollouts.files import OutputFiles, write_json
from gym.rollouts.gate import Gate
from gym.rollouts.ledger import Ledger
from gym.rollouts.lock import refuse_locked, run_lock
from gym.rollouts.manifest import Identity, Manifest, read_head
from gym.rollouts.metrics import compute_metrics
from gym.rollouts.model_calls import ModelCallFiles
from gym.rollouts.options import CollectOptions
from gym.rollouts.outcomes import Ended, failure_line
from gym.rollouts.pace import Pace, keep_pace
from gym.rollouts.progress import shown
from gym.rollouts.records import RecordMaker
from gym.rollouts.resume import Past, begun, check_first_line, check_same, read_past
from gym.rollouts.snapshot import View
from gym.rollouts.source import Preparation, Prepared
from gym.rollouts.store import LineFile, StoreError
from gym.rollouts.targets import Targets

EXIT_OK, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_INTERRUPTED = 0, 1, 76, 130
SYNC_SECONDS = 2.0
"""How often written rows are brought to disk."""
CANCEL_SECONDS = 30.0
"""How long cancelled episodes may take to let go before the files are written without them."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class CredentialsRefused(UserError):
    """The model, or a server, refused our credentials: no other rollout can do better."""


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    run_id: str
    files: OutputFiles
    coverage: Coverage
    metrics: dict[str, Any]
    interrupted: bool
    problem: str | None = None
    """Why the run was stopped, if it was by something else than an interrupt."""
    past: Past | None = None
    """The earlier run that it went on with, as that stood before."""
    concurrency: dict[str, Any] | None = None
    """How many episodes were out at a time, and how that came about; None where nothing was run."""

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ran this: 0, 1, 76 or 130."""
        if self.problem is not None:
            return EXIT_ERROR
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_OK if self.coverage.complete else EXIT_INCOMPLETE

    def resumed(self) -> dict[str, Any] | None:
        """What the done record says of an earlier run: what that had done, and what this one did; None if there was none."""
        if self.past is None:
            return None
        before, now = self.past.before, self.coverage
        return {
            "run_ids": self.past.run_ids,
            "ended_before": before.expected - before.owed,
            "measured_now": now.measured - before.measured,
            "attempts_now": now.attempts - before.attempts,
        }

    def as_dict(self) -> dict[str, Any]:
        """The done record."""
        return {
            "event": "done",
            "run_id": self.run_id,
            "exit_code": self.exit_code,
            "interrupted": self.interrupted,
            "problem": self.problem,
            "resumed": self.resumed(),
            "concurrency": self.concurrency,
            "output": str(self.files.output),
            "coverage": self.coverage.as_dict(),
            "metrics": self.metrics.get("overall"),
        }


@dataclass(frozen=True)
class Launch:
    """What is about to run; given to `on_launch` before the first dispatch."""

    run_id: str
    files: OutputFiles
    prepared: Prepared
    past: Past | None = None
    """The earlier run that is gone on with; None if there was none."""

    def as_dict(self) -> dict[str, Any]:
        """The launch record."""
        return {
            "event": "launch",
            "run_id": self.run_id,
            "output": str(self.files.output),
            "rows": self.prepared.rows,
            "bad_rows": self.prepared.bad_rows,
            "first_bad_row": self.prepared.first_problem,
            "positional_rows": self.prepared.positional_rows,
            "expected": self.prepared.expected,
            "resumed": self.past.as_dict() if self.past is not None else None,
        }


async def collect(
    options: CollectOptions,
    targets: Targets,
    dispatcher: Dispatcher,
    *,
    run_id: str,
    config_keys: Mapping[str, str],
    preparation: Callable[[CollectOptions, Targets, RecordMaker, OutputFiles], Preparation] = Preparation,
    on_launch: Callable[[Launch], None] | None = None,
    progress: TextIO | None = None,
) -> Summary:
    """Run every rollout of `options.input` and write the files beside `options.output`.

    `config_keys` are digests of the configuration's keys; `preparation` makes tasks of the rows. Progress is shown on `progress`
    (None: nowhere). SIGINT, SIGTERM and SIGHUP stop the run in good order (main thread only); so does cancelling this coroutine.
    Raises UserError if nothing can be run; a run that was stopped half-way returns its Summary, with `problem`.
    """
    files = OutputFiles(options.output)
    files.check_new(overwrite=options.overwrite, resume=options.resume, inputs=[options.input])
    try:
        files.output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder of --output {options.output} cannot be made: {error.strerror or error}") from None
    with run_lock(files.lock):
        # Again, because another collector may have finished between the first look and the lock.
        files.check_new(overwrite=options.overwrite, resume=options.resume, inputs=[options.input])
        records = RecordMaker(run_id, targets.environments)
        past: Past | None = None
        preparing = preparation(options, targets, records, files)
        try:
            if options.resume and begun(files):
                if progress is not None:
                    progress.write(f"reading back what the earlier run left at {printable(str(files.output))}\n")
                    progress.flush()
                past = await _in_thread(lambda stopped: read_past(files, options, config_keys, stopped))
                prepared = past.prepared
            else:
                prepared = await _in_thread(preparing.run)
                files.remove_results()
                prepared.place(files)
        except OSError as error:
            raise UserError(f"the output {options.output} cannot be begun: {error.strerror or error}") from None
        finally:
            preparing.prepared.discard()
        run = _Run(options, files, prepared, records, Identity(run_id, config_keys), past)
        if on_launch is not None:
            on_launch(Launch(run_id, files, prepared, past))
        return await run.to_end(dispatcher, progress)


async def _in_thread(step: Callable[[Callable[[], bool]], _T]) -> _T:
    """Do a long step, which asks whether to stop, beside the event loop; that may be serving the very servers of this run."""
    stop = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(step, stop.is_set))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({work})
        work.exception()  # that it stopped is no news
        raise


class _Run:
    """The open files and the account of one run."""

    def __init__(
        self,
        options: CollectOptions,
        files: OutputFiles,
        prepared: Prepared,
        records: RecordMaker,
        identity: Identity,
        past: Past | None,
    ) -> None:
        self._options, self._files, self._prepared, self._records, self._identity = options, files, prepared, records, identity
        self.ledger = past.ledger if past is not None else Ledger(prepared.tasks, prepared.invalid, options.attempts)
        try:
            if past is not None:
                self._manifest = Manifest.resumed(files, identity, past.head, past.changed)
            else:
                self._manifest = Manifest.begun(files, identity, options, prepared)
        except OSError as error:
            raise UserError(f"{files.manifest} cannot be written: {error.strerror or error}") from None
        self._output, self._failures = LineFile(files.output), LineFile(files.failures)
        self._feed = Feed(files.materialized, self._reserve, past.closed if past is not None else None)
        self._past = past
        self._problem: str | None = None
        self._pace = Pace(options.concurrency) if options.adaptive else None
        self._gate = Gate(options.concurrency if self._pace is None else self._pace.limit)

    async def to_end(self, dispatcher: Dispatcher, progress: TextIO | None) -> Summary:
        """Dispatch everything and write the account, whatever happens."""
        model_calls = ModelCallFiles(self._files.model_calls)
        window = Window(self._feed, dispatcher, self.ledger, self._gate, self._settle, model_calls)
        work = asyncio.create_task(window.run())
        beside = [asyncio.create_task(self._sync_by_interval())]
        if self._pace is not None:
            beside.append(asyncio.create_task(keep_pace(self._pace, self._gate, self.ledger, window.traffic, dispatcher.traffic)))
        interrupted = cancelled = False
        with _stop_signals(work.cancel) as signalled:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    if progress is not None:
                        view = View(self.ledger, window.flights, self._gate, adaptive=self._pace is not None)
                        await stack.enter_async_context(shown(view, dispatcher.stages, progress))
                    interrupted = await self._dispatch(work, beside, signalled)
            except asyncio.CancelledError:
                interrupted = cancelled = True
            except UserError as error:
                self._problem = str(error)
            except Exception as error:
                _log.exception("the collector broke; the account of the run is written all the same")
                self._problem = f"the collector broke: {type(error).__name__}: {error}"
            summary = self._write_account(interrupted)
        if cancelled:
            raise asyncio.CancelledError
        return summary

    async def _dispatch(self, work: asyncio.Task[None], beside: list[asyncio.Task[None]], signalled: Callable[[], bool]) -> bool:
        """See the window through; return whether a signal stopped it."""
        try:
            await asyncio.wait({work, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for task in beside:
                if not work.done() and task.done():
                    task.result()  # a failed sync ends the run
            if work.cancelled():
                return True
            work.result()
            return signalled() and self.ledger.count(Outcome.OWED) > 0
        finally:
            for task in (work, *beside):
                task.cancel()
            await asyncio.wait({work, *beside}, timeout=CANCEL_SECONDS)

    def _reserve(self, rollout: int, rollout_id: str) -> int:
        attempt = self.ledger.next_attempt(rollout)
        self._manifest.reserve(rollout_id, attempt)
        return self.ledger.reserve(rollout)

    def _settle(self, job: Job, ended: Ended) -> None:
        """Write what an attempt brought, then count it, then see whether it is tried again."""
        failure, ledger = ended.failure, self.ledger
        if failure is None:
            self._output.write(self._records.result(job.episode, ended.row or {}))
            ledger.settle(job.rollout, ended.outcome, reward=ended.reward)
            return
        again = ledger.charge(job.rollout, failure)
        ledger.first_failure = ledger.first_failure or failure_line(job.episode.rollout_id, failure.stage, failure.message)
        if ended.outcome is Outcome.MASKED and not again:
            self._output.write(self._records.result(job.episode, ended.row or {}))
            ledger.settle(job.rollout, Outcome.MASKED)
            return
        self._failures.write(self._records.failure(job.episode, failure))
        ledger.settle(job.rollout, Outcome.FAILED, kind=failure.kind or failure.failure_class, again=again)
        if failure.refused:
            status = f" (HTTP {failure.http_status})" if failure.http_status is not None else ""
            reason = " ".join(failure.message.split())
            raise CredentialsRefused(f"credentials were refused{status}, the run is stopped: {reason}")
        if again:
            tries = ledger.tries(job.rollout)
            self._feed.retry(job, tries, backoff(tries))

    async def _sync_by_interval(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            for file in (self._output, self._failures, self._manifest.journal):
                await asyncio.to_thread(file.sync)

    def _write_account(self, interrupted: bool) -> Summary:
        """Close the files and write coverage, metrics and manifest; a step that fails does not keep the others from being done."""
        self._feed.close()
        coverage = coverage_of(self.ledger, invalid=self._prepared.invalid, max_attempts=self._options.attempts)
        metrics: dict[str, Any] = {}

        def measure() -> None:
            metrics.update(run_id=self._identity.run_id, **compute_metrics(self._files.output, expected=self._prepared.expected))
            write_json(self._files.metrics, metrics)

        account = {"run_id": self._identity.run_id, **coverage.as_dict(), "interrupted": interrupted}
        steps: list[Callable[[], None]] = [
            self._output.close,
            self._failures.close,
            lambda: write_json(self._files.coverage, account),
            measure,
            lambda: self._manifest.finish(self.ledger),
        ]
        for step in steps:
            try:
                step()
            except (OSError, StoreError) as error:
                reason = (
                    str(error)
                    if isinstance(error, StoreError)
                    else f"{error.filename or self._files.output.parent}: {error.strerror or error}"
                )
                _log.error("the account of the run is incomplete: %s", reason)
                self._problem = self._problem or reason
        return Summary(self._identity.run_id, self._files, coverage, metrics, interrupted, self._problem, self._past, self._concurrency())

    def _concurrency(self) -> dict[str, Any]:
        return {"mode": "fixed", "limit": self._gate.limit} if self._pace is None else self._pace.as_dict()


@contextlib.contextmanager
def _stop_signals(stop: Callable[[], object]) -> Generator[Callable[[], bool]]:
    """Call `stop` at the first SIGINT, SIGTERM or SIGHUP and yield whether one came; a second one of them acts as it did before."""
    came = False
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        before.clear()

    def handle() -> None:
        nonlocal came
        came = True
        restore()
        stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            previous = signal.getsignal(number)
            if previous is not signal.SIG_IGN and previous is not None:
                before[number] = previous
                loop.add_signal_handler(number, handle)
    try:
        yield lambda: came
    finally:
        restore()


def check_resume(options: CollectOptions, config_keys: Mapping[str, str]) -> None:
    """What can be refused of a resumed run before any server is started. Raises UserError."""
    files = OutputFiles(options.output)
    if options.resume and begun(files):
        check_same(files, read_head(files.manifest), options, config_keys)
        check_first_line(files.output)


def check_before_start(options_output: Path, *, overwrite: bool, inputs: list[Path], resume: bool = False) -> None:
    """What can be refused before any server is started: an output that exists or cannot be, an input that does not. Raises UserError."""
    files = OutputFiles(options_output)
    files.check_new(overwrite=overwrite, resume=resume, inputs=inputs)
    files.check_writable()
    refuse_locked(files.lock)
    for path in inputs:
        if not path.exists():
            raise UserError(f"input file {path} does not exist: check the path (--input)")
        if path.is_dir():
            raise UserError(f"--input {path} is a folder: name a JSONL file")
        if not os.access(path, os.R_OK):
            raise UserError(f"input file {path} cannot be read: check its permissions")
