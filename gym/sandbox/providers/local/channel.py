"""Our side of a supervisor's socket: one connection, one request, with descriptors handed over.

Invariant: a command that was sent has ended, or its end was asked for and is confirmed or said not
to be, when `run` returns or raises. Output goes from the command straight into our bounded memory.
"""

import asyncio
import functools
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gym.sandbox.cleanup import finish
from gym.sandbox.output import BoundedOutput, output, take_the_rest
from gym.sandbox.spec import SANDBOX_FAILED_CODE, TIMEOUT_CODE, ExecResult, SandboxGoneError

_KILL_BOUND_S = 20.0
_CONNECT_BOUND_S = 10.0
_PACKET = 64 * 1024


@dataclass(frozen=True)
class Command:
    """What to run in the sandbox whose folder is `folder`."""

    folder: Path
    request: dict[str, Any]
    stdin: bytes | None
    timeout_s: float
    limit: int
    """Bytes kept of stdout and of stderr each."""
    output_file: Path | None = None
    """Takes all of stdout."""


class _Sink(asyncio.Protocol):
    def __init__(self, into: BoundedOutput) -> None:
        self._into = into
        self._transport: asyncio.ReadTransport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._into.feed(data)
        if self._into.wants_rest(self._go_on) and self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # whatever ended the pipe, what was read is kept
        if not self.ended.done():
            self.ended.set_result(None)


async def run(command: Command) -> ExecResult:
    """Run a command to its end, its time-out or a cancellation. A dead sandbox is a result.

    Raises SandboxError where the `output_file` cannot be written; the command is ended.
    """
    try:
        asking = await _connect(command.folder)
    except SandboxGoneError as error:
        return ExecResult("", str(error), SANDBOX_FAILED_CODE, "sandbox")
    try:
        async with output(command.limit, command.output_file) as stdout:
            stderr = BoundedOutput(command.limit)
            answer = await _run(asking, command, stdout, stderr)
    finally:
        asking.close()
    return await _result(command, answer, stdout, stderr)


async def _run(asking: socket.socket, command: Command, stdout: BoundedOutput, stderr: BoundedOutput) -> dict[str, Any]:
    ends: list[asyncio.Future[None]] = []
    transports: list[asyncio.BaseTransport] = []
    theirs: list[int] = []
    loop = asyncio.get_running_loop()
    try:
        theirs.append(memory_file(json.dumps(command.request).encode()))
        theirs.append(memory_file(command.stdin) if command.stdin else os.open(os.devnull, os.O_RDONLY))
        for into in (stdout, stderr):
            ours, their = os.pipe()
            theirs.append(their)
            transport, sink = await loop.connect_read_pipe(functools.partial(_Sink, into), os.fdopen(ours, "rb", 0))
            transports.append(transport)
            ends.append(sink.ended)
        # From here to the next await nothing can be cancelled: what is sent is attended to.
        answer = await _attend(asking, theirs, command.timeout_s, stdout)
        if answer.get("code") is not None or answer.get("killed"):
            await take_the_rest(ends, stdout, stderr)
    finally:
        for fd in theirs:
            with suppress(OSError):
                os.close(fd)
        for transport in transports:
            transport.close()
    return answer


async def _result(command: Command, answer: dict[str, Any], stdout: BoundedOutput, stderr: BoundedOutput) -> ExecResult:
    out, err = await stdout.text(), await stderr.text()
    truncated = stdout.truncated or stderr.truncated
    if answer.get("timed_out"):
        note = f"\n[timed out after {command.timeout_s:g} s]\n"
        return ExecResult(out, err + note, TIMEOUT_CODE, "timeout", truncated, bool(answer["killed"]))
    if "code" not in answer:
        why = f"sandbox {command.folder.name} ended while a command ran in it"
        return ExecResult(out, f"{err}\n{why}" if err else why, SANDBOX_FAILED_CODE, "sandbox", truncated)
    return ExecResult(out, err + str(answer.get("said", "")), int(answer["code"]), None, truncated)


async def _attend(asking: socket.socket, theirs: list[int], timeout_s: float, stdout: BoundedOutput) -> dict[str, Any]:
    """Send the request and wait for its answer; an empty one if the sandbox died, one with `timed_out` if time ran out."""
    try:
        socket.send_fds(asking, [b"?"], theirs)
    except OSError:
        return {}
    while theirs:
        os.close(theirs.pop())
    try:
        async with asyncio.timeout(timeout_s):
            return await stdout.during(_answer(asking))
    except TimeoutError:
        answer = await _kill(asking)
        if answer and "code" in answer:  # it ended by itself in the last moment
            return answer
        # A sandbox that died meanwhile took the command with it.
        return {"timed_out": True, "killed": bool(answer is not None and answer.get("killed", True))}
    except BaseException:
        await _kill(asking)
        raise


async def _kill(asking: socket.socket) -> dict[str, Any] | None:
    """Ask for the end of what was asked before; the answer to that, or None if there was none in time."""
    with suppress(OSError):
        asking.shutdown(socket.SHUT_WR)
    try:
        return await finish(_answer(asking), _KILL_BOUND_S)
    except TimeoutError:
        return None


async def _answer(asking: socket.socket) -> dict[str, Any]:
    try:
        said = await asyncio.get_running_loop().sock_recv(asking, _PACKET)
    except OSError:
        said = b""
    return json.loads(said) if said else {}


def open_file(folder: Path, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Ask for a file of the sandbox: the answer, with a descriptor if it was opened. Blocks shortly; SandboxGoneError if it is dead."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.settimeout(_CONNECT_BOUND_S)
        given = memory_file(json.dumps(request).encode())
        try:
            _reach(asking, folder)
            socket.send_fds(asking, [b"?"], [given])
            said, fds, _, _ = socket.recv_fds(asking, _PACKET, 1)
        except OSError as error:
            raise _gone(folder) from error
        finally:
            os.close(given)
    if not said:
        raise _gone(folder)
    return json.loads(said), fds[0] if fds else None


def memory_file(content: bytes) -> int:
    """A descriptor from which `content` can be read."""
    fd = os.memfd_create("gym", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _reach(asking: socket.socket, folder: Path) -> None:
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        asking.connect(f"/proc/self/fd/{inside}/ctl")  # a socket's own path may not be long
    finally:
        os.close(inside)


def _gone(folder: Path) -> SandboxGoneError:
    return SandboxGoneError(f"sandbox {folder.name} is gone, or does not answer")


async def _connect(folder: Path) -> socket.socket:
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        asking.setblocking(False)
        async with asyncio.timeout(_CONNECT_BOUND_S):
            while True:
                try:
                    _reach(asking, folder)
                except BlockingIOError:  # its queue is full
                    await asyncio.sleep(0.01)
                else:
                    return asking
    except BaseException as error:
        asking.close()
        if isinstance(error, (OSError, TimeoutError)):
            raise _gone(folder) from error
        raise
