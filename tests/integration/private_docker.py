"""A Docker engine of a test's own, with its own containerd, that can be killed and started again without harm to anybody.

Everything of it is below one folder; containers have no network. Nothing of it is left after `remove`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_START_SECONDS = 40


class PrivateDocker:
    """One engine. It does not run until `start`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gymd-", dir="/tmp"))  # a socket's path may not be long
        self._processes: list[subprocess.Popen[bytes]] = []
        (self.folder / "containerd.toml").write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        (self.folder / "dockerd.json").write_text("{}")  # not this machine's own
        (self.folder / "data").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(self.folder / "data")], check=True)  # images are loaded much faster

    @property
    def host(self) -> str:
        """For a provider's `host`."""
        return f"unix://{self.folder}/d.sock"

    @property
    def running(self) -> bool:
        """Whether it was started, and not killed since."""
        return bool(self._processes)

    @staticmethod
    def why_not() -> str | None:
        """Why there can be none on this machine."""
        if os.geteuid() != 0:
            return "a private Docker engine needs root"
        lacking = [program for program in ("dockerd", "containerd", "docker", "unshare") if shutil.which(program) is None]
        return f"{' and '.join(lacking)} is not installed" if lacking else None

    def docker(self, *arguments: str, given: "int | None" = None) -> "subprocess.CompletedProcess[str]":
        """Run the command line against it."""
        return subprocess.run(
            ["docker", "-H", self.host, *arguments], stdin=given, text=True, capture_output=True, check=False, timeout=120
        )

    def start(self) -> None:
        """Start containerd and dockerd, and wait until they answer."""
        x = self.folder
        (x / "d.pid").unlink(missing_ok=True)
        sock = f"{x}/c.sock"
        self._begin(
            "containerd",
            "containerd",
            "--config",
            f"{x}/containerd.toml",
            "--root",
            f"{x}/c-root",
            "--state",
            f"{x}/c-state",
            "--address",
            sock,
        )
        self._wait(lambda: (x / "c.sock").is_socket(), "containerd")
        # In a network namespace of its own: an engine without a bridge removes the one that it finds, which is the usual engine's.
        own = ["unshare", "--net", "dockerd", "--containerd", sock, "--config-file", f"{x}/dockerd.json", "--pidfile", f"{x}/d.pid"]
        places = ["--data-root", f"{x}/data", "--exec-root", f"{x}/exec", "-H", self.host]
        self._begin("dockerd", *own, *places, "--bridge=none", "--iptables=false", "--ip6tables=false")
        self._wait(lambda: self.docker("version").returncode == 0, "dockerd")

    def load(self, image: str) -> None:
        """Take an image over from the usual engine."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
            assert saving.stdout is not None
            loaded = self.docker("load", given=saving.stdout.fileno())
        assert loaded.returncode == 0, loaded.stderr

    def kill(self) -> None:
        """Kill dockerd and containerd at once. Containers run on, as they would after a crash."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        for name in ("c.sock", "d.sock"):
            (self.folder / name).unlink(missing_ok=True)

    def containers(self) -> list[str]:
        """All containers that it knows."""
        return self.docker("ps", "-aq").stdout.split()

    def processes(self) -> list[psutil.Process]:
        """Every process of it: the daemons, the shims, and what they started."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.folder) in " ".join(process.cmdline()):
                    found += [process, *process.children(recursive=True)]
        return found

    def remove(self) -> None:
        """End everything of it, and remove every trace."""
        if self._processes and (left := self.containers()):
            self.docker("rm", "-f", *left)
        self.kill()
        deadline = time.monotonic() + 20
        while (left_over := self.processes()) and time.monotonic() < deadline:
            for process in left_over:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(left_over, 1)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.folder) in line.split()[4]]
        for mount in reversed(mounts):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder)

    def _begin(self, what: str, *argv: str) -> None:
        with (self.folder / f"{what}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)
            )

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            log = (self.folder / f"{what}.log").read_text(errors="replace")[-2000:]
            assert self._processes[-1].poll() is None, f"{what} ended:\n{log}"
            assert time.monotonic() < deadline, f"{what} does not answer:\n{log}"
            time.sleep(0.05)
