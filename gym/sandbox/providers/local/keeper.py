"""The process that keeps one local sandbox: starts it, ends it when it is time, and removes what is left.

Invariant: while the keeper lives it holds the lock of the sandbox's folder, so whoever finds the
lock free knows that the sandbox is dead; and when the keeper ends, however, the sandbox ends with
it. It does not depend on the process that started it. Standard library only: it is run as a
script, and the provider uses `remove` and `is_locked` from here.

A folder holds `labels.json`, `lock`, `pid` (of the keeper), `cgroups.json`, `ctl` (the supervisor's
socket), `log` (what bubblewrap and the supervisor said) and `tree` (what the sandbox can write).
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SUPERVISOR = "/run/nemo-gym/supervisor.py"
_STAGE = "/tmp"
_OOM_SCORE = "-500"
_TTL_GRACE_S = 2.0
_REMOVALS = 5


def is_locked(folder: Path) -> bool:
    """Whether the keeper of the sandbox in `folder` lives."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remove(folder: Path) -> None:
    """Remove the folder of a sandbox whose processes have ended, its control groups first; OSError if something stays."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        for group in json.loads((folder / "cgroups.json").read_bytes()):
            _remove_group(Path(group))
    # `rm` takes trees of any depth. The labels go last, so that a removal that failed can be found and tried again.
    for what in (folder / "tree", folder):
        for attempt in range(_REMOVALS):
            done = _run("rm", "-rf", "--", str(what))
            if done.returncode == 0:
                break
            if attempt == _REMOVALS - 1:
                raise OSError(done.stderr.decode(errors="replace").strip().partition("\n")[0][:300])
            # Folders that may not be entered, or a process that writes in its last moment after its keeper was killed.
            _run("chmod", "-R", "u+rwX", "--", str(what))
            time.sleep(0.05)


def _run(*argv: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)


def _remove_group(group: Path) -> None:
    for _ in range(100):  # the kernel takes a moment to see that the last process is gone
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                for pid in (group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.02)
        else:
            return
    raise OSError(f"control group {group} is still in use")


class Keeper:
    """One sandbox, from its start to its removal."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.told_to_end, self._tell = os.pipe()

    def keep(self, say: Callable[[str], None]) -> None:
        """Start the sandbox, `say` "ready" or why not, and keep it until it ends."""
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for name in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(name, _wakes)
        for name in (signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        process, first = None, -1
        deadline = time.monotonic() + self.config["ttl_s"] + _TTL_GRACE_S
        try:
            process, first, ready = self._start()
            if not self._is_ready(ready):
                process.wait(10)
                raise OSError((self.folder / "log").read_text(errors="replace").strip()[-500:] or "it ended at once")
            (self.folder / "ready").touch(0o600)
            say("ready")
            self._wait(process, deadline)
        except (OSError, subprocess.SubprocessError) as error:
            with contextlib.suppress(OSError):
                say(str(error))
        finally:
            self._end(process, first)
            remove(self.folder)

    def _start(self) -> "tuple[subprocess.Popen[bytes], int, int]":
        """The outer process, a pidfd of process 1 inside, and the pipe on which it says that it is ready."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.chdir(self.folder)  # a socket's path may not be long
        listener.bind("ctl")
        listener.listen(1024)
        ready, getting_ready = os.pipe()
        telling, told = os.pipe()
        given = _memfd(json.dumps(self.config["supervisor"]).encode())
        fds = [listener.fileno(), given, getting_ready, told]
        python = self.config["python"]
        numbers = [str(fd) for fd in fds[:3]]
        if self.config["unconfined"]:
            argv = [*python, self.config["supervisor_file"], *numbers]
        else:
            data = [(_memfd(text.encode()), path) for path, text in self.config["data"].items()]
            data.append((_memfd(Path(self.config["supervisor_file"]).read_bytes()), _SUPERVISOR))
            fds += [fd for fd, _ in data]
            program, *options = self.config["bwrap"]
            if self.config["uid"]:
                program = f"{_STAGE}/{len(self.config['binds'])}"
            argv = [program, *options, "--info-fd", str(told)]
            for number, (source, target, mode) in enumerate(self.config["binds"]):
                argv += ["--bind" if mode == "rw" else "--ro-bind", f"{_STAGE}/{number}" if self.config["uid"] else source, target]
            for fd, path in data:
                argv += ["--perms", "0444", "--ro-bind-data", str(fd), path]
            argv += ["--remount-ro", "/", "--chdir", "/", "--", *python, _SUPERVISOR, *numbers]
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                env={"PATH": os.defpath},
                preexec_fn=self._before_exec,
                start_new_session=True,
            )
        finally:
            listener.close()
            for fd in {*fds[1:], log}:
                os.close(fd)
        first = process.pid
        if not self.config["unconfined"]:
            with os.fdopen(telling, "rb") as info:
                said = info.read()
            first = json.loads(said)["child-pid"] if said else process.pid
        return process, os.pidfd_open(first), ready

    def _before_exec(self) -> None:
        """In the child that becomes the sandbox; what goes wrong is said in the log."""
        try:
            self._confine()
        except OSError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(1)

    def _confine(self) -> None:
        """Enter the control groups, and be the unprivileged user that the sandbox runs as."""
        for group in self.config["cgroups"]:
            Path(group, "cgroup.procs").write_text(str(os.getpid()))
        if self.config["unconfined"]:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if uid := self.config["uid"]:
            with contextlib.suppress(OSError):  # some roots may not
                Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
            _stage([*(source for source, _, _ in self.config["binds"]), self.config["bwrap"][0]])
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)

    def _is_ready(self, ready: int) -> bool:
        seen, _, _ = select.select([ready], [], [], self.config["ready_timeout_s"])
        if not seen:
            raise OSError(f"it was not ready within {self.config['ready_timeout_s']:g} s")
        said = os.read(ready, 16)
        os.close(ready)
        return said == b"ready"

    def _wait(self, process: "subprocess.Popen[bytes]", deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0 and process.poll() is None:
            seen, _, _ = select.select([self.told_to_end], [], [], min(left, 3600))
            if seen and signal.SIGTERM in os.read(self.told_to_end, 64):
                return

    def _end(self, process: "subprocess.Popen[bytes] | None", first: int) -> None:
        """End all processes of the sandbox, and be certain of it."""
        if process is None:
            return
        # The kernel ends process 1 of a namespace only once everybody else in it has ended.
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        select.select([first], [], [], 60)
        if process.poll() is None:
            process.kill()
        process.wait()
        while self.config["unconfined"] and (left := _adopted()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.005)


def _wakes(_number: int, _frame: object) -> None:
    """The signal is seen on the wake-up pipe."""


def _adopted() -> list[int]:
    """Our children: in an unconfined sandbox that is what is left of it."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _stage(sources: list[str]) -> None:
    """Bind what the sandbox may see below a folder that its unprivileged user can enter, in a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        given = [None if text is None else text.encode() for text in (source, target, kind)]
        if libc.mount(*given, flags, None if data is None else data.encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount {source}")

    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot make a mount namespace")
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    opened = [(os.open(source, os.O_PATH), Path(source).is_dir()) for source in sources]
    mount("tmpfs", _STAGE, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    for number, (fd, is_folder) in enumerate(opened):
        target = f"{_STAGE}/{number}"
        if is_folder:
            Path(target).mkdir()
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        mount(f"/proc/self/fd/{fd}", target, None, _MS_BIND | _MS_REC)
        os.close(fd)


def _memfd(content: bytes) -> int:
    fd = os.memfd_create("config", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def main() -> None:
    """Argument: the folder. The configuration comes on stdin; the answer goes to stdout. Descriptor 3 and up: the lock, held."""
    folder = Path(sys.argv[1])
    (folder / "pid").write_text(str(os.getpid()))
    config: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    if config["unconfined"]:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answer = os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)

    def say(text: str) -> None:
        os.write(answer, text.encode()[:4000])
        os.close(answer)

    Keeper(folder, config).keep(say)


if __name__ == "__main__":
    main()
