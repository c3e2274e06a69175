"""The one session registry, for resources sessions and agent sessions alike.

It owns the life of a session: opening -> open -> closing -> receipt. Its invariants:

- Ids are the caller's. The same open again joins or repeats the first; the same id with another
  body is a 409. Closing an id that was never open fences it: a later open is refused.
- What a session holds is released exactly once, in reverse order of registration. A release that
  fails leaves the session open for another close, by its caller or by the next sweep; it is never
  recorded as closed.
- Opening, closing and work run in tasks of the registry's own, so that a caller that goes away
  changes nothing; whoever comes back joins the same task. A close cancels them and waits for them
  before anything is released.
- A result made under a session (a verdict, an activation's response) is kept by the digest of its
  request. Where the server wants it so, it survives the close in the receipt.
- Sessions expire by an active sweeper; nobody has to call for that to happen.

Left out: what a session is for. Servers put that into `Session.state`.
"""

import asyncio
import logging
import pickle
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId, TaskId
from gym.servers.waiting import first_done

log = logging.getLogger("gym.servers.sessions")

State = TypeVar("State")
Result = TypeVar("Result")

Release = Callable[[], Awaitable[None]]

_SWEEP_SECONDS = 5.0
"""How long one sweep waits for what it closes; a release that takes longer goes on by itself and holds nobody up."""

_COMPRESS_BYTES = 1024

SHUTDOWN_SECONDS = 120.0
"""How long `close_all` waits for releases; below the time after which a server process that should end is killed."""


def digest(body: bytes) -> bytes:
    """The name under which the result of a request with this body is kept."""
    return blake2b(body, digest_size=16).digest()


class Session(Generic[State]):
    """One session: who it belongs to, what the server keeps for it, and what it must release.

    `episode_id` and `task_id` are None for a session of the old form.
    """

    state: State

    def __init__(self, session_id: str, episode_id: EpisodeId | None, task_id: TaskId | None) -> None:
        self.id = session_id
        self.episode_id = episode_id
        self.task_id = task_id
        self.lock = asyncio.Lock()
        """Held by lifecycle work; a server may take it to serialise calls of its own."""
        self.opened = False
        """Whether the opening was completed."""
        self._releases: list[tuple[str, Release]] = []

    def on_release(self, what: str, release: Release) -> None:
        """Run `release` when the session ends, before everything that was registered earlier.

        Register before the resource is made, so that a cancelled opening still gives it back;
        `release` must be idempotent.
        """
        self._releases.append((what, release))

    async def release(self) -> None:
        """Give back everything. Raises ContractError naming what could not be; calling again tries those once more."""
        problems: list[str] = []
        for entry in reversed(tuple(self._releases)):
            what, release = entry
            try:
                await release()
            except Exception as error:
                log.exception("session %s: cannot release %s", self.id, what)
                problems.append(f"{what}: {type(error).__name__}: {error}")
            else:
                self._releases.remove(entry)
        if problems:
            raise _release_failed(f"session {self.id} could not release {'; '.join(problems)}")


@dataclass(slots=True)
class Receipt:
    """What is left of a closed session: its answers, packed, until `expires` (monotonic seconds)."""

    episode_id: EpisodeId | None
    expires: float
    reply: bytes = pickle.dumps(None)
    results: dict[bytes, bytes] | None = None
    expired_session: bool = False


@dataclass(slots=True, eq=False)
class _Entry(Generic[State]):
    session: Session[State]
    fingerprint: bytes
    expires: float
    opening: asyncio.Task[Any] | None = None
    closing: asyncio.Task[Any] | None = None
    fenced: bool = False
    """Closing has begun: nothing new is admitted, even if the release failed and is to be repeated."""
    expired: bool = False
    """It was the sweeper that closed it."""
    finished: bool = False
    close_reply: Any = None
    work: dict[bytes, asyncio.Task[Any]] = field(default_factory=dict[bytes, "asyncio.Task[Any]"])
    calls: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])


class SessionRegistry(Generic[State]):
    """All sessions of one server. Times in seconds; `what` names them in messages, e.g. "agent session".

    `finish` runs first when a session ends, however it ends; what it returns is the answer to the
    close. It runs for sessions that were opened, and for half-opened ones whose `state` was set.
    `keep_results` lets results of work outlive their session.
    """

    def __init__(
        self,
        what: str,
        *,
        ttl_seconds: float,
        receipt_seconds: float,
        finish: Callable[[Session[State]], Awaitable[Any]] | None = None,
        keep_results: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._finish = finish
        self._keep_results = keep_results
        self._closed = False
        self._ttl = ttl_seconds
        self._receipt_seconds = receipt_seconds
        self._clock = clock
        self._entries: dict[str, _Entry[State]] = {}
        self._receipts: dict[str, Receipt] = {}

    def __len__(self) -> int:
        """How many sessions are not closed."""
        return len(self._entries)

    async def open(self, session: Session[State], fingerprint: bytes, build: Callable[[Session[State]], Awaitable[Result]]) -> Result:
        """Open `session` by running `build` once, and return what it returned; a repeat returns the same.

        Raises ContractError (409) for an id that is closed, fenced, or open with another body, and
        whatever `build` raises; a session whose `build` failed is released and forgotten.
        """
        if session.id in self._receipts:
            raise ContractError(409, f"{self._what} {session.id} is already closed")
        entry = self._entries.get(session.id)
        if entry is None and self._closed:
            raise ContractError(503, f"no {self._what} can be opened any more: the server is stopping", kind="shutdown", retry_after=5)
        if entry is None:
            entry = _Entry(session, fingerprint, self._clock() + self._ttl)
            self._entries[session.id] = entry
            entry.opening = self._start(self._run_open(entry, build))
        elif entry.fingerprint != fingerprint:
            raise ContractError(409, f"{self._what} {session.id} is already open with another body")
        elif entry.fenced:
            raise ContractError(409, f"{self._what} {session.id} is closing")
        assert entry.opening is not None
        return await self._join(entry.opening)

    async def _run_open(self, entry: _Entry[State], build: Callable[[Session[State]], Awaitable[Result]]) -> Result:
        try:
            async with entry.session.lock:
                result = await build(entry.session)
                entry.session.opened = True
                return result
        except Exception:
            if not entry.fenced:
                entry.fenced = True
                try:
                    await self._give_back(entry)
                except ContractError as error:
                    # It stays, for closing only: by its caller, or by the next sweep.
                    entry.expires = min(entry.expires, self._clock())
                    log.warning("%s %s was not opened, and: %s", self._what, entry.session.id, error.message)
                else:
                    self._entries.pop(entry.session.id, None)
            raise

    def get(self, session_id: str) -> Session[State]:
        """The open session. Raises ContractError: 409 while opening, closing or closed, 410 if it is not known."""
        entry = self._entries.get(session_id)
        if entry is not None and not entry.fenced:
            if entry.session.opened:
                return entry.session
            raise ContractError(409, f"{self._what} {session_id} is still being opened", terminal=False)
        if entry is not None or session_id in self._receipts:
            raise ContractError(409, f"{self._what} {session_id} is closed", kind="session_lost")
        # Lost with a server that was started anew, most likely: the episode is tried again, as `session_lost` says.
        raise ContractError(410, f"{self._what} {session_id} is not known here", kind="session_lost", terminal=False)

    async def once(self, session_id: str, key: bytes, run: Callable[[Session[State]], Awaitable[Result]]) -> Result:
        """Run `run` under the session, once for each `key`: a repeat joins it or gets its result, with `keep_results` also after close.

        A run that raised is forgotten and may be repeated. Raises ContractError as `get` does.
        """
        receipt = self._receipts.get(session_id)
        if receipt is not None and receipt.results is not None and key in receipt.results:
            return _unpacked(receipt.results[key])
        entry = self._entries.get(session_id)
        task = entry.work.get(key) if entry is not None else None
        if task is None:
            session = self.get(session_id)
            entry = self._entries[session_id]
            task = entry.work[key] = self._start(self._run_work(entry, key, run, session))
        return await self._join(task)

    async def during(self, session_id: str, run: Callable[[Session[State]], Awaitable[Result]]) -> Result:
        """Run `run` under the open session, each time anew; a close cancels it, so that it never meets what was released.

        Raises ContractError as `get` does.
        """
        session = self.get(session_id)
        calls = self._entries[session_id].calls
        task = self._start(_awaited(run(session)))
        calls.add(task)
        task.add_done_callback(calls.discard)
        return await self._join(task)

    async def _run_work(
        self, entry: _Entry[State], key: bytes, run: Callable[[Session[State]], Awaitable[Result]], session: Session[State]
    ) -> Result:
        try:
            return await run(session)
        except BaseException:
            entry.work.pop(key, None)
            raise

    def is_open(self, session_id: str) -> bool:
        """Whether `get` would return it."""
        entry = self._entries.get(session_id)
        return entry is not None and not entry.fenced and entry.session.opened

    def episode_of(self, session_id: str) -> EpisodeId | None:
        """The episode that a session belongs to, or belonged to; None where that is not known."""
        entry = self._entries.get(session_id)
        if entry is not None:
            return entry.session.episode_id
        receipt = self._receipts.get(session_id)
        return receipt.episode_id if receipt is not None else None

    async def close(self, session_id: str, episode_id: EpisodeId | None) -> Any:
        """Close a session and return what `finish` returned; None for an id that was never open, which is fenced.

        Running work is cancelled first. Idempotent: a repeat joins the close or gets its answer
        again. Raises ContractError: 409 for another episode's id, 500 if something could not be
        released (the session then stays, for another close).
        """
        receipt = self._receipts.get(session_id)
        if receipt is not None:
            self._check_episode(session_id, receipt.episode_id, episode_id)
            return _unpacked(receipt.reply)
        entry = self._entries.get(session_id)
        if entry is None:
            self._receipts[session_id] = Receipt(episode_id, self._clock() + self._receipt_seconds)
            return None
        self._check_episode(session_id, entry.session.episode_id, episode_id)
        return await self._join(self._closing(entry))

    def _closing(self, entry: _Entry[State]) -> "asyncio.Task[Any]":
        """The task that closes `entry`; from now on nothing new is admitted."""
        entry.fenced = True
        if entry.closing is None:
            entry.closing = self._start(self._run_close(entry))
        return entry.closing

    async def _run_close(self, entry: _Entry[State]) -> Any:
        session = entry.session
        try:
            await _stop([task for task in (entry.opening, *entry.work.values(), *entry.calls) if task is not None and not task.done()])
            async with session.lock:
                await self._give_back(entry)
        except BaseException:
            entry.closing = None
            entry.expires = min(entry.expires, self._clock())
            raise
        ended = [(key, task) for key, task in entry.work.items() if task.done() and not task.cancelled()]
        results = {key: _packed(task.result()) for key, task in ended if self._keep_results and task.exception() is None}
        expires = self._clock() + self._receipt_seconds
        self._entries.pop(session.id, None)
        self._receipts[session.id] = Receipt(session.episode_id, expires, _packed(entry.close_reply), results or None, entry.expired)
        return entry.close_reply

    async def _give_back(self, entry: _Entry[State]) -> None:
        """Finish the session and release what it holds. Raises ContractError; what was done is not done again by a repeat."""
        session = entry.session
        if self._finish is not None and not entry.finished and (session.opened or "state" in vars(session)):
            try:
                entry.close_reply = await self._finish(session)
            except ContractError:
                raise
            except Exception as error:
                log.exception("%s %s: cannot be finished", self._what, session.id)
                reason = f"{self._what} {session.id} could not be finished: {type(error).__name__}: {error}"
                raise _release_failed(reason) from error
            entry.finished = True
        await session.release()

    def check_episode(self, session_id: str, given: EpisodeId) -> None:
        """Raise ContractError (409) if this session is another episode's; one that is not known is nobody's."""
        self._check_episode(session_id, self.episode_of(session_id), given)

    def _check_episode(self, session_id: str, known: EpisodeId | None, given: EpisodeId | None) -> None:
        if known is not None and given is not None and known != given:
            raise ContractError(409, f"{self._what} {session_id} belongs to episode {known.capture_key}, not to {given.capture_key}")

    def _start(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_seen)
        return task

    async def _join(self, task: "asyncio.Task[Result]") -> Result:
        """Wait for a task that is not ours to cancel. One that a close cancelled is a 409, not our own cancellation."""
        await first_done(task)
        if task.cancelled():
            raise ContractError(409, f"the {self._what} was closed while this was running", kind="cancelled", terminal=False)
        return task.result()

    def expired_session(self, session_id: str) -> bool:
        """Whether this session was closed by the sweeper."""
        receipt = self._receipts.get(session_id)
        return receipt is not None and receipt.expired_session

    async def sweep(self) -> None:
        """Close every session that is past its time, and forget every receipt that is. A failed close is tried again next time."""
        now = self._clock()
        for session_id in [key for key, receipt in self._receipts.items() if receipt.expires <= now]:
            del self._receipts[session_id]
        closing: list[asyncio.Task[Any]] = []
        for entry in self._entries.values():
            if entry.expires > now:
                continue
            if not entry.fenced:
                entry.expired = True
                log.warning("%s %s expired after %g s", self._what, entry.session.id, self._ttl)
            closing.append(self._closing(entry))
        if not closing:
            return
        done, _ = await asyncio.wait(closing, timeout=_SWEEP_SECONDS)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("%s; it will be tried again", error)

    async def sweep_forever(self) -> None:
        """Sweep for as long as the server lives."""
        interval = max(0.05, min(30.0, self._ttl / 4, self._receipt_seconds / 4))
        while True:
            await asyncio.sleep(interval)
            await self.sweep()

    async def close_all(self) -> None:
        """Close everything, at shutdown, and open nothing more. What cannot be released is logged and left to the other nets."""
        self._closed = True
        closing = [self._closing(entry) for entry in self._entries.values()]
        if not closing:
            return
        done, hung = await asyncio.wait(closing, timeout=SHUTDOWN_SECONDS)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("at shutdown: %s", error)
        if hung:
            log.error("at shutdown: %d %s(s) could not be released within %g s", len(hung), self._what, SHUTDOWN_SECONDS)
            for task in hung:
                task.cancel()


def _packed(value: Any) -> bytes:
    """A value as few bytes: receipts are many and long-lived, and hardly ever read."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return zlib.compress(data, 1) if len(data) > _COMPRESS_BYTES else data


def _unpacked(data: bytes) -> Any:
    return pickle.loads(data if data.startswith(b"\x80") else zlib.decompress(data))  # every pickle of ours starts so, no zlib stream does


def _seen(task: "asyncio.Task[Any]") -> None:
    """Mark a failure as seen: whoever joined got it, and a caller that went away left nobody to tell."""
    if not task.cancelled():
        task.exception()


def _release_failed(reason: str) -> ContractError:
    return ContractError(500, reason, kind="session_release_failed", terminal=False)


async def _awaited(work: Awaitable[Result]) -> Result:
    return await work


async def _stop(tasks: list["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
