"""The two ways to make a server process: by argument vector, or by forking this one.

Forking is for `gym env start`: the parent has imported everything that a server needs, so a forked
child is there at once and shares those pages. It is done only while this process has neither an
event loop nor a second thread. Everything else (restarts, servers with a Python of their own)
starts an interpreter. Either way the child runs `gym.runtime.child`, in a session of its own.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path


class Child:
    """A running child: its pid, and waiting for its end."""

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """As `subprocess` has it: negative for a signal."""
        self._reap = reap

    async def wait(self) -> int:
        """Wait for its end, and return how it ended."""
        if self.returncode is None:
            await _ended(self.pid)
            self.returncode = self._reap()
        return self.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)  # not reaped yet, so the pid is still its own


async def _ended(pid: int) -> None:
    """Return once the child `pid` has ended; it is not reaped."""
    if not hasattr(os, "pidfd_open"):
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    descriptor = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def spawn(python: str, spec_path: Path, listeners: Sequence[int], log_path: Path, env: dict[str, str] | None) -> Child:
    """Start an interpreter for one server, which inherits these sockets."""
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            [python, "-m", "gym.runtime.child", str(spec_path), ",".join(map(str, listeners)), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=tuple(listeners),
            start_new_session=True,
            env=env,
        )
    return Child(process.pid, process.wait)


def can_fork() -> bool:
    """Whether forking is safe just now: no event loop, no other thread, and a way to see which files are open."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.active_count() == 1 and Path("/proc/self/fd").is_dir()
    return False


def fork(spec_path: Path, listeners: Sequence[int], log_path: Path) -> Child:
    """Fork this process into one server. Call `preload` once before."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # here, so that a child has it whatever the parent does next
    pid = os.fork()
    if pid:
        os.close(log)
        return Child(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    try:
        os.setsid()
        _redirect(log, keep=listeners)
        from gym.runtime.child import main

        code = main(str(spec_path), ",".join(map(str, listeners)), str(parent))
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def _redirect(log: int, keep: Sequence[int]) -> None:
    """Standard streams as a spawned server has them, and no other file of the parent's open."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    for descriptor in descriptors:
        if descriptor > 2 and descriptor not in keep:
            with contextlib.suppress(OSError):  # the one that listed the folder is closed already
                os.close(descriptor)


def preload() -> None:
    """Import what every server needs, and put it out of the garbage collector's reach, so that its pages stay shared."""
    import gc
    import importlib

    for module in ("aiohttp", "uvloop", "gym.runtime.child", "gym.runtime.listen", "gym.runtime.loading"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
