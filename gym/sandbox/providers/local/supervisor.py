"""Process 1 of a local sandbox: runs commands and opens files for whoever can reach its socket.

Invariant: a command's tree is ended completely or not at all, whatever it does to get away. Every
command is started by an *attendant*, which adopts all that detaches itself from the command and
ends only when nobody of the tree is left. So a child of process 1 that is no attendant can only
be left over from an attendant that was killed, and is killed too.

Runs inside the sandbox with the standard library alone, and imports nothing of ours. What runs
beside it is hostile: it cannot be signalled (it is process 1), nor be read or traced (it is not
dumpable), and its socket is not visible from inside.

One connection is one request: a packet with file descriptors, the first of which holds the request
as JSON. `exec` brings stdin, stdout and stderr and is answered with the exit code; closing the
writing side before that ends the command. `read` and `write` are answered with a descriptor.
"""

import ctypes
import errno
import json
import os
import resource
import selectors
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_LONGEST_ARGUMENT = 100_000
_FROM_FD_3 = 'script=$(cat <&3); exec 3<&-; eval "$script"'
_KILL_BOUND_S = 10.0
_TICK_S = 0.01
_SPARE_PIDS = 64
"""What the supervisor may start above the limit of the commands, so that it can still start the next one."""

_libc = ctypes.CDLL(None, use_errno=True)


class Tree:
    """One command with all that came of it."""

    def __init__(self, attendant: int, report: int, asker: "socket.socket | None") -> None:
        self.attendant = attendant
        self.report = report
        self.asker = asker
        self.dying_since: float | None = None
        self.gone = False


class Supervisor:
    """Serves one listening socket until its deadline."""

    def __init__(self, listener: socket.socket, config: dict[str, Any]) -> None:
        self.listener = listener
        self.config = config
        self.deadline = time.monotonic() + config["ttl_s"]
        self.shell = next((path for path in ("/bin/bash", "/bin/sh") if os.access(path, os.X_OK)), "/bin/sh")
        self.selector = selectors.DefaultSelector()
        self.trees: dict[int, Tree] = {}
        self.hunting = 0
        """Passes over all processes that must still find no escaped one."""

    def run(self) -> None:
        """Serve until the deadline. The end of this process is the end of the sandbox."""
        awake, wake = os.pipe()
        os.set_blocking(awake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wakes)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.selector.register(awake, selectors.EVENT_READ, lambda: os.read(awake, 4096))
        if self.config["entrypoint"]:
            self._start({"argv": self.config["entrypoint"], "cwd": self.config["workdir"], "env": {}}, [None, None, None], None)
        while (left := self.deadline - time.monotonic()) > 0:
            busy = self.hunting or any(tree.dying_since is not None for tree in self.trees.values())
            for key, _ in self.selector.select(min(left, _TICK_S if busy else 3600)):
                key.data()
            self._reap()
            if busy:
                self._kill_pass()

    def _accept(self) -> None:
        asker, _ = self.listener.accept()
        asker.setblocking(True)
        self.selector.register(asker, selectors.EVENT_READ, lambda: self._request(asker))

    def _request(self, asker: socket.socket) -> None:
        self.selector.unregister(asker)
        fds: list[int] = []
        try:
            _, fds, _, _ = socket.recv_fds(asker, 64, 8)
            if not fds:
                asker.close()
                return
            request: dict[str, Any] = json.loads(_content(fds[0]))
            if request["op"] == "exec":
                self._start(request, list(fds[1:4]), asker)
                return
            answer, opened = _open_for_reading(request) if request["op"] == "read" else _open_for_writing(request)
            try:
                socket.send_fds(asker, [json.dumps(answer).encode()], [opened] if opened is not None else [])
            finally:
                if opened is not None:
                    os.close(opened)
            asker.close()
        except (OSError, ValueError, LookupError) as error:
            _answer(asker, {"error": "failed", "said": getattr(error, "strerror", None) or repr(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _start(self, request: dict[str, Any], streams: "list[int | None]", asker: "socket.socket | None") -> None:
        report, reporting = os.pipe()
        try:
            attendant = os.fork()
        except OSError as error:
            os.close(report)
            os.close(reporting)
            if asker:
                _answer(asker, {"code": 126, "said": f"no process could be started: {error.strerror}"})
            return
        if attendant == 0:
            try:
                self._attend(request, streams, reporting)
            finally:
                os._exit(1)
        os.close(reporting)
        tree = Tree(attendant, report, asker)
        self.trees[attendant] = tree
        self.selector.register(report, selectors.EVENT_READ, lambda: self._reported(tree))
        if asker:
            self.selector.register(asker, selectors.EVENT_READ, lambda: self._let_go(tree))

    def _reported(self, tree: Tree) -> None:
        """The command itself has ended, or its attendant was killed."""
        said = os.read(tree.report, 64)
        self.selector.unregister(tree.report)
        os.close(tree.report)
        tree.report = -1
        if tree.dying_since is None:
            self._tell(tree, {"code": int(said) if said else 137})

    def _let_go(self, tree: Tree) -> None:
        """Whoever asked for the command wants it to end, or is no more."""
        if tree.asker is not None and tree.dying_since is None:
            self.selector.unregister(tree.asker)
            tree.dying_since = time.monotonic()

    def _tell(self, tree: Tree, answer: dict[str, Any]) -> None:
        if tree.asker is not None:
            if tree.dying_since is None:
                self.selector.unregister(tree.asker)
            _answer(tree.asker, answer)
            tree.asker = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            tree = self.trees.get(pid)
            if tree is None:
                continue
            tree.gone = True
            if os.WIFSIGNALED(status):
                self.hunting = 2
            if tree.dying_since is None:
                del self.trees[pid]

    def _kill_pass(self) -> None:
        """Kill once what must die; what is born meanwhile is for the next pass."""
        children = _living_children()
        own = os.getpid()
        escaped = [pid for pid in children.get(own, []) if pid not in self.trees]
        for pid in [*escaped, *_below(escaped, children)]:
            _kill(pid)
        if self.hunting:
            self.hunting = 2 if escaped else self.hunting - 1
        for pid, tree in list(self.trees.items()):
            if tree.dying_since is None:
                continue
            if not tree.gone:
                below = _below([pid], children)
                for child in below:
                    _kill(child)
                if not below:
                    _kill(pid)
            late = time.monotonic() - tree.dying_since > _KILL_BOUND_S
            if (tree.gone and not self.hunting) or late:
                self._tell(tree, {"killed": not late})
                del self.trees[pid]

    def _attend(self, request: dict[str, Any], streams: "list[int | None]", reporting: int) -> None:
        """In the attendant: start the command, report its end, and stay until its tree is gone."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        nothing = os.open("/dev/null", os.O_RDWR)
        given = [nothing if fd is None else fd for fd in streams]
        for target in range(3):
            os.dup2(nothing, target)
        _close_all_but({0, 1, 2, reporting, *given})
        try:
            command = os.fork()
        except OSError as error:
            os.write(given[2], f"no process could be started: {error.strerror}\n".encode())
            os.write(reporting, b"126")
            os._exit(0)
        if command == 0:
            try:
                self._become(request, given)
            finally:
                os._exit(126)
        _close_all_but({0, 1, 2, reporting})
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)
            if pid == command:
                code = os.waitstatus_to_exitcode(status)
                os.write(reporting, str(128 - code if code < 0 else code).encode())
                os.close(reporting)

    def _become(self, request: dict[str, Any], streams: list[int]) -> None:
        """In the command's process: be the command."""
        os.setsid()
        for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        _close_all_but({0, 1, 2})
        argv: list[str] = request.get("argv") or [self.shell, "-c", request["command"]]
        if "argv" not in request and len(request["command"].encode()) > _LONGEST_ARGUMENT:
            script = os.memfd_create("script", os.MFD_CLOEXEC)
            _write_all(script, request["command"].encode())
            os.lseek(script, 0, os.SEEK_SET)
            os.dup2(script, 3)
            os.set_inheritable(3, True)  # it may have been 3 already
            argv = [self.shell, "-c", _FROM_FD_3]
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        with suppress(OSError):  # it was not lowered for us then
            Path("/proc/self/oom_score_adj").write_text("0")
        os.umask(0o022)
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            os.write(2, f"cannot run in {request['cwd']!r}: {error.strerror}\n".encode())
            os._exit(126)
        limit = self.config["pids_limit"]
        if limit:
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        try:
            os.execvpe(argv[0], argv, {**self.config["env"], **request["env"]})
        except OSError as error:
            os.write(2, f"cannot run {argv[0]!r}: {error.strerror}\n".encode())
            os._exit(127 if error.errno == errno.ENOENT else 126)


def _wakes(_number: int, _frame: object) -> None:
    """The signal is seen on the wake-up pipe."""


def _content(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _close_all_but(kept: set[int]) -> None:
    start = 0
    for fd in sorted(kept):
        if fd > start:  # an empty range would be taken for all
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 1 << 30)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _answer(asker: socket.socket, answer: dict[str, Any]) -> None:
    """Answer and hang up; somebody who is gone needs no answer."""
    with suppress(OSError):
        asker.send(json.dumps(answer).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    asker.close()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _living_children() -> dict[int, list[int]]:
    """Parent -> children that are no zombies, of all processes we see."""
    children: dict[int, list[int]] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        try:
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # A process whose first thread has ended looks like a zombie, and lives on in its other threads.
        if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
    return children


def _below(roots: list[int], children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    ahead = list(roots)
    while ahead:
        more = children.get(ahead.pop(), [])
        found += more
        ahead += more
    return found


def _open_for_reading(request: dict[str, Any]) -> "tuple[dict[str, Any], int | None]":
    path = request["path"]
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return {"error": "missing"}, None
    except OSError as error:
        return {"error": "special" if error.errno == errno.ENXIO else "failed", "said": error.strerror}, None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return {"error": "special"}, None
    return {"size": os.fstat(fd).st_size}, fd


def _open_for_writing(request: dict[str, Any]) -> "tuple[dict[str, Any], int | None]":
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.fchmod(fd, request["mode"])
    return {}, fd


def main() -> None:
    """Arguments: the descriptors of the listening socket, of the configuration, and of the pipe that awaits `ready`."""
    listening, configuring, ready = map(int, sys.argv[1:4])
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    config: dict[str, Any] = json.loads(_content(configuring))
    os.close(configuring)
    for fd in (listening, ready):
        os.set_inheritable(fd, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if config["pids_limit"]:
        most = config["pids_limit"] + _SPARE_PIDS
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        if hard == resource.RLIM_INFINITY or hard > most:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        else:
            config["pids_limit"] = min(config["pids_limit"], hard)
    os.umask(0o022)
    for folder in (config["workdir"], config["home"]):
        Path(folder).mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(socket.socket(fileno=listening), config)
    os.write(ready, b"ready")
    os.close(ready)
    supervisor.run()
    os._exit(0)


if __name__ == "__main__":
    main()
