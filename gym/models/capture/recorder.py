"""The rollouts of one model server while their calls are recorded: order, budgets, fence, and the close.

Invariants: a call's begin line is written before it is made, its end line before whoever made it lets the reply go; each is
written once. A rollout that was closed takes no more calls until it is opened anew. What cannot be written is said to be
missing, and never keeps a model from answering. What is held here of a rollout can be made again from its file, so that idle
ones are forgotten and a restarted server goes on.
"""

import asyncio
import logging
import math
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from gym.models.calls import CallNotes, CallTotals, Dialect, ModelCall
from gym.models.capture.facts import broke, note_reply
from gym.models.capture.folder import CaptureFolder
from gym.models.capture.records import Capture, Writer, read_capture
from gym.models.capture.report import report_of
from gym.protocol.errors import ContractError
from gym.protocol.failures import BUDGET_EXHAUSTED, MODEL_FAILED, bounded_reason

log = logging.getLogger("gym.models.capture")

_ROLLOUTS = 4096
"""How many rollouts are kept in mind; those that are idle longest are made again from their files."""
RECEIPTS = 20_000
"""How many closed rollouts are remembered at most."""
_RECEIPT_BYTES = 256 * 2**20
_COMPRESS_BYTES = 1024


@dataclass(frozen=True)
class Limits:
    """What one rollout may use; None is no limit. Checked before each call, so that calls in flight may go beyond `tokens`."""

    calls: int | None = None
    tokens: int | None = None
    """Input and output of all answered calls."""
    failures: int | None = None
    """Calls that failed one after the other, for what is not the agent's own doing."""


@dataclass(eq=False)
class Rollout:
    """What is known of one rollout."""

    key: str
    session: str | None = None
    """Who opened it."""
    writer: Writer = field(default_factory=Writer)
    next_index: int = 0
    tokens: int = 0
    failures: int = 0
    """How many calls failed since the last one that did not."""
    calls: list[ModelCall] | None = field(default_factory=list[ModelCall])
    """All calls that have ended, without their bodies; None where the file has more."""
    problems: list[str] = field(default_factory=list[str])
    """What could not be written."""
    fenced: bool = False
    refused: str | None = None
    in_flight: set["Recording"] = field(default_factory=set["Recording"])

    def count(self, call: ModelCall) -> None:
        """Take the end of a call into account."""
        if broke(call):
            self.failures += 1
        elif call.error_category is None:
            self.failures = 0
            self.tokens += (call.input_tokens or 0) + (call.output_tokens or 0)


class Recording:
    """One call on its way. Whoever made it calls `end` once; what comes later counts for nothing."""

    def __init__(self, recorder: "Recorder", rollout: Rollout, call: ModelCall, written: bool) -> None:
        self.call = call
        self.ended = False
        self.partial: Callable[[], dict[str, Any] | None] = lambda: None
        """What there is of the reply by now."""
        self._recorder, self._rollout, self._written = recorder, rollout, written
        self._task = asyncio.current_task()
        self._began = time.perf_counter()
        rollout.in_flight.add(self)

    @property
    def cut_off(self) -> bool:
        """Whether the call was ended by the close of its rollout."""
        return self.ended and self._rollout.fenced and self.call.error_category == "cancelled"

    @property
    def whole(self) -> bool:
        """Whether the reply is on record to its end."""
        return self.ended and self.call.complete

    def first_token(self) -> None:
        """The first piece of the reply is here."""
        if self.call.first_token_ms is None:
            self.call.first_token_ms = self._elapsed()

    def end(
        self, status: int, response: dict[str, Any] | None, *, complete: bool = True, category: str | None = None, error: str = ""
    ) -> None:
        """Write down how the call ended."""
        if self.ended:
            return
        self.ended = True
        call = self.call
        call.status, call.response, call.complete, call.error_category = status, response, complete, category
        call.error = bounded_reason(error) if error else None
        call.latency_ms = self._elapsed()
        self._rollout.in_flight.discard(self)
        self._recorder.ended(self._rollout, call, self._written)

    def cut(self) -> None:
        """End the call from outside."""
        self.end(499, self.partial(), complete=False, category="cancelled", error="the rollout was closed while the call was in flight")
        if self._task is not None:
            self._task.cancel()

    def _elapsed(self) -> float:
        return round((time.perf_counter() - self._began) * 1000, 3)


@dataclass(slots=True)
class _Receipt:
    """The report of a closed rollout, packed, until `expires` (monotonic seconds)."""

    session: str | None
    report: bytes
    expires: float


class Recorder:
    """All rollouts of one model server. `receipt_seconds` is how long a closed one is remembered."""

    def __init__(self, model_server: str, folder: CaptureFolder, limits: Limits, *, receipt_seconds: float = 3_600) -> None:
        self._model_server, self._folder, self._limits = model_server, folder, limits
        self.totals = CallTotals()
        self._rollouts: OrderedDict[str, Rollout] = OrderedDict()
        self._receipts: OrderedDict[str, _Receipt] = OrderedDict()
        self._receipt_seconds, self._receipt_bytes = receipt_seconds, 0

    def __len__(self) -> int:
        """How many rollouts have a call in flight."""
        return sum(bool(rollout.in_flight) for rollout in self._rollouts.values())

    def begin(
        self, key: str, dialect: Dialect, request: dict[str, Any], notes: CallNotes, *, streamed: bool, token_capture: bool
    ) -> Recording:
        """Write down that a call begins. Raises ContractError: 410 if the rollout is closed, 400 if it has used up a budget."""
        rollout = self._rollout(key)
        if rollout.fenced:
            raise ContractError(410, f"rollout {key} is closed, and makes no more model calls", kind="session_lost", terminal=False)
        self._refuse_over_budget(rollout)
        if rollout.failures >= (self._limits.failures or math.inf):
            reason = f"the last {rollout.failures} calls of rollout {key} failed, and it makes no more"
            raise ContractError(400, reason, kind=MODEL_FAILED, terminal=True)  # a status that no client tries again
        call = ModelCall(uuid.uuid4().hex, rollout.next_index, dialect, streamed, request, started_at=time.time(), notes=notes)
        rollout.next_index += 1
        chains: list[list[bytes]] = []

        def line() -> bytes:
            made, learned = rollout.writer.begin(call, token_capture)
            chains.extend(learned)
            return made

        written = self._write(rollout, line, f"the begin of call {call.index}")
        if written:
            rollout.writer.wrote_begin(call, chains)
        return Recording(self, rollout, call, written)

    def ended(self, rollout: Rollout, call: ModelCall, begun: bool) -> None:
        """Write down the end of a call; one whose begin could not be written is left out whole."""
        if call.error_category is None:
            note_reply(call)
        rollout.count(call)
        self.totals.add(call)
        chain: list[bytes] = []

        def line() -> bytes:
            made, learned = rollout.writer.end(call)
            chain.extend(learned)
            return made

        if begun and self._write(rollout, line, f"the end of call {call.index}"):
            rollout.writer.wrote_end(call, chain)
            if rollout.calls is not None:
                call.drop_bodies()
                rollout.calls.append(call)

    def open(self, key: str, session: str) -> None:
        """Begin a rollout anew, without what stood under its key. A repeat changes nothing. Raises ContractError (409) if it was closed."""
        receipt = self._receipt(key)
        if receipt is not None and receipt.session == session:
            raise ContractError(409, f"the capture of {key} is already closed")
        earlier = self._rollout(key)
        if earlier.session == session:
            return
        self._drop(earlier)
        self._forget(key)
        rollout = self._rollouts[key] = Rollout(key, session)
        try:
            self._folder.remove(key)
        except OSError as error:
            rollout.problems.append(f"what stood under the key could not be removed: {error.strerror or error}")
        self._write(rollout, lambda: _line({"open": session}), "the opening")

    def close(
        self, key: str, session: str | None, *, keep: bool, finish: Callable[[dict[str, Any], Capture], None], bodies: bool = True
    ) -> bytes:
        """Fence a rollout, end its calls, and return its report; a repeat returns the same.

        `finish` may add to the report before it is packed; without `bodies` its calls may come without theirs, which saves reading the
        file. Without `keep` the file goes. Raises ContractError (409) if another session has the rollout.
        """
        receipt = self._receipt(key)
        if receipt is not None:
            _check_session(key, receipt.session, session)
            return _unpacked(receipt.report)
        rollout = self._rollout(key)
        _check_session(key, rollout.session, session)
        self._drop(rollout)
        capture = self._captured(rollout, bodies)
        report = report_of(key, self._model_server, capture, rollout.problems)
        if rollout.refused is not None:
            report["budget_exhausted"] = rollout.refused
        if rollout.failures >= (self._limits.failures or math.inf):
            report["failed"] = _said_of_failures(rollout.failures, capture)
        finish(report, capture)
        if keep:
            report["kept"] = True
            if not capture.closed:
                self._write(rollout, lambda: _line({"closed": time.time()}), "the close")
        else:
            self.retire(key)
        packed = orjson.dumps(report)
        self._remember(key, rollout.session or session, packed)
        return packed

    def raw(self, key: str) -> bytes:
        """The lines of a rollout. Raises ContractError: 404 if there are none, 500 if they cannot be read."""
        try:
            lines = self._folder.lines(key)
        except OSError as error:
            reason = f"the capture of {key} cannot be read: {error.strerror or error}"
            raise ContractError(500, reason, kind="persistence_failed", terminal=False) from error
        if lines is None:
            raise ContractError(404, f"there is no capture of {key}")
        return lines

    def retire(self, key: str) -> None:
        """Remove the lines of a rollout; what is closed stays closed."""
        try:
            self._folder.remove(key)
        except OSError as error:
            log.warning("the capture of %s cannot be removed, and stays as long as its run: %s", key, error)

    def stop(self) -> None:
        """Let go of all files."""
        self._folder.close()

    def _rollout(self, key: str) -> Rollout:
        """The rollout as it is remembered, or as its file has it."""
        rollout = self._rollouts.get(key)
        if rollout is not None:
            self._rollouts.move_to_end(key)
            return rollout
        rollout = Rollout(key, fenced=self._receipt(key) is not None)
        if not rollout.fenced:
            self._recall(rollout)
            self._rollouts[key] = rollout
            self._forget_idle()
        return rollout

    def _captured(self, rollout: Rollout, bodies: bool) -> Capture:
        """What is on record of a rollout; read anew where not all of it is known here."""
        if rollout.calls is not None and not bodies and not rollout.problems:
            calls = sorted(rollout.calls, key=lambda call: call.index)
            return Capture(calls, session=rollout.session, refused=rollout.refused)
        try:
            return read_capture((self._folder.lines(rollout.key) or b"").splitlines())
        except OSError as error:
            rollout.problems.append(f"the capture cannot be read: {error.strerror or error}")
            return Capture()

    def _recall(self, rollout: Rollout) -> None:
        """Take up a rollout where another process, or we ourselves before we forgot it, left it."""
        try:
            content = self._folder.lines(rollout.key)
            if content is None:
                return
            rollout.calls = None
            if not content.endswith(b"\n"):
                self._folder.append(rollout.key, b"\n")
            capture = read_capture(content.splitlines())
            if self._folder.marked_incomplete(rollout.key):
                rollout.problems.append("a line could not be written")
        except OSError as error:
            rollout.problems.append(f"what was recorded before cannot be read: {error.strerror or error}")
            return
        for call in capture.calls:
            rollout.writer.learn(call)
            rollout.next_index = call.index + 1
            rollout.count(call)
        rollout.session, rollout.fenced, rollout.refused = capture.session, capture.closed, capture.refused

    def _forget_idle(self) -> None:
        if len(self._rollouts) > _ROLLOUTS:
            idle = (key for key, rollout in self._rollouts.items() if not rollout.in_flight and not rollout.problems)
            self._rollouts.pop(next(idle, ""), None)

    def _drop(self, rollout: Rollout) -> None:
        """Fence a rollout, end its calls, and keep it in mind no longer."""
        rollout.fenced = True
        for recording in tuple(rollout.in_flight):
            recording.cut()
        self._rollouts.pop(rollout.key, None)

    def _refuse_over_budget(self, rollout: Rollout) -> None:
        limits = self._limits
        if limits.calls is not None and rollout.next_index >= limits.calls:
            budget, limit, used = "max_calls_per_rollout", limits.calls, f"{rollout.next_index} calls"
        elif limits.tokens is not None and rollout.tokens >= limits.tokens:
            budget, limit, used = "max_tokens_per_rollout", limits.tokens, f"{rollout.tokens} tokens"
        else:
            return
        if rollout.refused is None:
            rollout.refused = budget
            self._write(rollout, lambda: _line({"refused": budget}), "a refusal")
        reason = f"rollout {rollout.key} has made {used}, and {budget} is {limit}"
        raise ContractError(400, reason, kind=BUDGET_EXHAUSTED, terminal=True)

    def _write(self, rollout: Rollout, line: Callable[[], bytes], what: str) -> bool:
        """Write a line if that is possible; whatever goes wrong here concerns the record alone."""
        try:
            self._folder.append(rollout.key, line())
            return True
        except OSError as error:
            rollout.problems.append(f"{what} could not be written: {error.strerror or error}")
        except Exception as error:
            log.exception("%s of %s cannot be recorded", what, rollout.key)
            rollout.problems.append(f"{what} could not be recorded: {type(error).__name__}: {error}")
        self._folder.mark_incomplete(rollout.key)
        return False

    def _remember(self, key: str, session: str | None, report: bytes) -> None:
        packed = zlib.compress(report, 1) if len(report) > _COMPRESS_BYTES else report
        self._receipts[key] = _Receipt(session, packed, time.monotonic() + self._receipt_seconds)
        self._receipt_bytes += len(packed)
        while (len(self._receipts) > RECEIPTS or self._receipt_bytes > _RECEIPT_BYTES) and len(self._receipts) > 1:
            self._forget(next(iter(self._receipts)))
        self._receipt(next(iter(self._receipts)))  # so that they go when their time is over, and not only when there are many

    def _receipt(self, key: str) -> _Receipt | None:
        receipt = self._receipts.get(key)
        if receipt is not None and receipt.expires <= time.monotonic():
            self._forget(key)
            return None
        return receipt

    def _forget(self, key: str) -> None:
        receipt = self._receipts.pop(key, None)
        if receipt is not None:
            self._receipt_bytes -= len(receipt.report)


def _check_session(key: str, known: str | None, given: str | None) -> None:
    if known is not None and given is not None and known != given:
        raise ContractError(409, f"the capture of {key} was opened by another session than {given}")


def _said_of_failures(failures: int, capture: Capture) -> str:
    last = next((call for call in reversed(capture.calls) if broke(call)), None)
    said = f": {last.error_category}: {last.error or f'status {last.status}'}" if last else ""
    return bounded_reason(f"the last {failures} model calls failed one after the other{said}")


def _line(record: dict[str, Any]) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _unpacked(report: bytes) -> bytes:
    return report if report.startswith(b"{") else zlib.decompress(report)
