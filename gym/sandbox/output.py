"""A command's output: bounded in memory, and streamed to a file of ours where somebody wants all of it.

Invariant: whatever a command prints, no more is kept in memory than the bound and what the disk is
behind by, bytes are kept as they are, and the event loop waits neither for the disk nor for long texts.
"""

import asyncio
import codecs
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from weakref import WeakKeyDictionary

from gym.sandbox.cleanup import finish
from gym.sandbox.spec import SandboxError

T = TypeVar("T")

_PIECE = 64 * 1024
_CLOSE_BOUND_S = 60.0
_DRAIN_S = 0.3
_DRAINS = 10
_AT_ONCE = 16 * 1024
"""Bytes that are decoded in one go, a few tenths of a millisecond. A thread would not help: it holds the interpreter meanwhile."""

_MAX_BEHIND = 4 * 1024 * 1024
"""Bytes that may wait for the disk before the command is made to wait for it."""

_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()
"""Whose turn it is to make a long text: many of them at once would add up to a long step."""


class BoundedOutput:
    """The start and the end of a byte stream, each at most half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        self._total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room + _PIECE:  # cut rarely, so that a flood costs little
            del self._tail[: len(self._tail) - self._tail_room]

    def wants_rest(self, _go_on: Callable[[], None]) -> bool:
        """Whether the stream must pause now, until `go_on` is called."""
        return False

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` while output comes in. Raises SandboxError, with `work` cancelled, once output can no longer be taken."""
        return await work

    @property
    def resting(self) -> bool:
        """Whether the stream is paused just now."""
        return False

    @property
    def total(self) -> int:
        """Bytes seen."""
        return self._total

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self._total > self._head_room + self._tail_room

    def content(self) -> bytes:
        """What was kept; where the middle is missing it says so."""
        return b"".join(self._parts())

    def _parts(self) -> list[bytes | bytearray | memoryview]:
        if not self.truncated:
            return [self._head, self._tail]
        left_out = self._total - self._head_room - self._tail_room
        end = memoryview(self._tail)[len(self._tail) - self._tail_room :]
        return [self._head, f"\n[... {left_out} bytes left out ...]\n".encode(), end]

    async def text(self) -> str:
        """What was kept, as UTF-8 with replacement characters. Long texts are made one after the other, in small steps."""
        if self._total <= _AT_ONCE:
            return self.content().decode(errors="replace")
        async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await self._long_text()

    async def _long_text(self) -> str:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pieces: list[str] = []
        for part in map(memoryview, self._parts()):
            for start in range(0, len(part), _AT_ONCE):
                if pieces:
                    await asyncio.sleep(0)
                pieces.append(decoder.decode(part[start : start + _AT_ONCE]))  # pyright: ignore[reportArgumentType] - any buffer will do
        return "".join([*pieces, decoder.decode(b"", final=True)])


class FiledOutput(BoundedOutput):
    """Bounded output that is written to a file as well, whole, by one thread at a time."""

    def __init__(self, limit: int, path: Path, file: BinaryIO) -> None:
        super().__init__(limit)
        self._path = path
        self._file = file
        self._waiting: list[bytes] = []
        self._behind = 0
        self._writing: asyncio.Task[None] | None = None
        self._go_on: Callable[[], None] | None = None
        self._failed: asyncio.Future[SandboxError] = asyncio.get_running_loop().create_future()

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream; they are written soon."""
        super().feed(data)
        if self._failed.done():
            return
        self._waiting.append(bytes(data))
        self._behind += len(data)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    def wants_rest(self, go_on: Callable[[], None]) -> bool:
        """Whether the disk is behind, and the stream must pause until `go_on` is called."""
        if self._behind <= _MAX_BEHIND:
            return False
        self._go_on = go_on
        return True

    @property
    def resting(self) -> bool:
        """Whether the stream is paused just now."""
        return self._go_on is not None

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, or raise SandboxError with `work` cancelled as soon as the file can no longer be written."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._failed.result()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def finished(self) -> None:
        """Wait until all that came is written. Raises SandboxError if something could not be."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self._failed.done():
            raise self._failed.result()

    async def close(self) -> None:
        """Write no more, and let go of the file."""
        self._waiting.clear()
        if self._writing is not None:
            await self._writing
        with suppress(OSError):  # it tries once more to write what could not be written
            await asyncio.to_thread(self._file.close)

    def _append(self, pieces: list[bytes]) -> None:
        self._file.writelines(pieces)
        self._file.flush()

    async def _write(self) -> None:
        try:
            while self._waiting:
                pieces, self._waiting = self._waiting, []
                await asyncio.to_thread(self._append, pieces)
                self._behind -= sum(map(len, pieces))
                self._resume()
        except OSError as error:
            self._waiting.clear()
            self._behind = 0
            why = f"output cannot be written to {str(self._path)!r}: {error.strerror or error}; the command was ended"
            self._failed.set_result(SandboxError(why, "persistence_failed"))
            self._resume()
        finally:
            self._writing = None

    def _resume(self) -> None:
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()


async def take_the_rest(ends: Iterable[asyncio.Future[None]], *outputs: BoundedOutput) -> None:
    """Take what a command that has ended printed last. A child that it left behind may hold its output open, and is not waited for."""
    rounds = 0
    while rounds < _DRAINS:
        before = sum(output.total for output in outputs)
        _, still_open = await asyncio.wait(ends, timeout=_DRAIN_S)
        resting = any(output.resting for output in outputs)
        if not still_open or (not resting and sum(output.total for output in outputs) == before):
            return
        rounds += not resting


@asynccontextmanager
async def output(limit: int, path: Path | None) -> AsyncGenerator[BoundedOutput]:
    """Where one stream of a command goes: into memory, and with `path` whole into that file, which is made anew.

    Raises SandboxError (`persistence_failed`) if the file cannot be made, or not be written to the end.
    """
    if path is None:
        yield BoundedOutput(limit)
        return
    try:
        file = await asyncio.to_thread(path.open, "wb")
    except OSError as error:
        raise SandboxError(f"output cannot be written to {str(path)!r}: {error.strerror or error}", "persistence_failed") from error
    filed = FiledOutput(limit, path, file)
    try:
        yield filed
        await filed.finished()
    finally:
        await finish(filed.close(), _CLOSE_BOUND_S)
