"""What the local provider alone promises: that its walls hold, and that nothing of it stays behind."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxFileError, SandboxSpec, SandboxSpecError, SandboxStatus

OWNER = Ownership("test-local", "box")

AS_NOBODY = """
import asyncio, os, sys
import gym.sandbox.providers.local.provider
from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec, SandboxSpecError
import encodings.ascii, encodings.idna, concurrent.futures.thread

async def main():
    provider = provider_from_block("sandbox", {"local": {"root": sys.argv[1]}})
    async with await OwnedSandbox.start(provider, SandboxSpec(provider_options={"pids_limit": 32}), Ownership("r", "i")) as box:
        print((await box.exec("id -un; touch /work/x /tmp/y && chmod 0 /tmp && echo wrote")).stdout, end="")
        ended = await box.exec("bomb() { sleep 1234 & bomb & bomb; }; bomb 2>/dev/null", timeout_s=1)
        print(ended.error_type, ended.cleanup_confirmed)
        await box.upload("/work/file", b"by nobody")
        print((await box.download("/work/file")).decode())
    print(provider.capabilities.limits, os.listdir(sys.argv[1]))

os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.executable, sys.base_prefix = os.path.realpath("/usr/bin/python3"), "/usr"
asyncio.run(main())
"""


@pytest.fixture
async def provider(need_bubblewrap: None, tmp_path: Path) -> AsyncIterator[Provider]:
    made = provider_from_block("sandbox", {"local": {"root": str(tmp_path / "sandboxes")}})
    yield made
    await made.sweep(run_id=OWNER.run_id)
    await made.aclose()
    assert list((tmp_path / "sandboxes").glob("*")) == []


@pytest.fixture
async def box(provider: Provider) -> AsyncIterator[OwnedSandbox]:
    async with await OwnedSandbox.start(provider, SandboxSpec(), OWNER) as sandbox:
        yield sandbox


def keeper_of(box: OwnedSandbox, tmp_path: Path) -> int:
    return int((tmp_path / "sandboxes" / box.sandbox_id / "pid").read_text())


def processes_with(text: bytes) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def refusing_bwrap() -> Iterator[Path]:
    """A bwrap of a machine that allows no namespaces, where every user can run it."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "bwrap")
        program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        for path in (program, program.parent):
            path.chmod(0o755)
        yield program


def left_in(folder: Path) -> list[Path]:
    return list(folder.glob("*"))


def control_groups(sandbox_id: str) -> list[Path]:
    return [path for below in ("*/nemo-gym", "nemo-gym") for path in Path("/sys/fs/cgroup").glob(f"{below}/{sandbox_id}")]


class TestWalls:
    async def test_nothing_of_the_host_can_be_written(self, box: OwnedSandbox) -> None:
        for path in ("/x", "/usr/x", "/etc/x", "/etc/passwd", "/run/x", "/run/nemo-gym/supervisor.py", "/proc/sys/kernel/core_pattern"):
            done = await box.exec(f"echo x >{path}")
            assert not done.ok, path
        for path in ("/usr/x", "/etc/passwd", "/x/y"):
            with pytest.raises(SandboxFileError, match="failed"):
                await box.upload(path, b"")
        assert (await box.exec("touch /work/x /tmp/x /home/gym/x /dev/shm/x; echo $?")).stdout == "0\n"
        assert not (await box.exec("mount -t tmpfs none /work || unshare -Ur true || mknod /work/d b 8 0")).ok

    async def test_little_of_the_host_can_be_read(self, box: OwnedSandbox) -> None:
        assert (await box.exec("ls -A /")).stdout.split() == sorted(
            ["bin", "dev", "etc", "home", "proc", "run", "sbin", "tmp", "usr", "work"]
            + [name for name in ("lib", "lib32", "lib64", "libx32") if name in os.listdir("/")]  # noqa: PTH208
        )
        assert (await box.exec("ls -A /root /var /home/gym /etc/shadow /etc/hosts 2>/dev/null")).stdout == "/home/gym:\n"
        assert "GYM" not in (await box.exec("env")).stdout
        assert (await box.exec("id -u; grep -c 'CapEff:.*[1-9a-f]' /proc/self/status")).stdout == "1000\n0\n"

    async def test_the_supervisor_cannot_be_touched_from_inside(self, box: OwnedSandbox) -> None:
        assert (await box.exec("kill -9 1; kill -STOP 1; cat /proc/1/environ /proc/1/mem; ls /proc/1/fd")).stdout == ""
        assert (await box.exec("kill -9 -1")).return_code == 137
        assert (await box.exec("echo here")).stdout == "here\n"

    async def test_killing_the_attendant_helps_nobody_escape(self, box: OwnedSandbox) -> None:
        done = await box.exec("(setsid env -i sleep 1234 &); kill -9 $PPID; sleep 1234", timeout_s=20)
        assert (done.return_code, done.error_type) == (137, None)
        async with asyncio.timeout(5):
            while b"1" in (await box.exec("pgrep -c -f '^sleep 1234'")).stdout.encode():  # noqa: ASYNC110 - the supervisor's doing
                await asyncio.sleep(0.05)
        stopped = await box.exec("(setsid env -i sleep 1234 &); kill -STOP $PPID; sleep 1234", timeout_s=1)
        assert (stopped.error_type, stopped.cleanup_confirmed) == ("timeout", True)
        assert (await box.exec("pgrep -c -f '^sleep 1234'")).stdout == "0\n"

    async def test_a_process_without_its_first_thread_is_no_zombie(self, box: OwnedSandbox) -> None:
        if not (await box.exec("command -v python3")).ok:
            pytest.skip("there is no python3 in /usr/bin")
        script = (
            "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1234,)).start(); ctypes.CDLL(None).pthread_exit(0)"
        )
        ended = await box.exec(f"setsid python3 -c '{script}' & sleep 1234", timeout_s=1.5)
        assert (ended.error_type, ended.cleanup_confirmed) == ("timeout", True)
        assert (await box.exec("pgrep -c -f pthread_exit")).stdout == "0\n"

    async def test_a_download_never_leaves_the_sandbox(self, box: OwnedSandbox, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("of the host")
        await box.exec(f"ln -s {tmp_path}/secret /work/link; ln -s / /work/root; ln -s {tmp_path} /work/out")
        for path in ("/work/link", f"/work/root{tmp_path}/secret", "/work/../../../etc/shadow"):
            with pytest.raises(SandboxFileError):
                await box.download(path)
        with pytest.raises(SandboxFileError):
            await box.upload("/work/out/planted", b"")
        assert not (tmp_path / "planted").exists()

    async def test_host_paths_are_visible_on_request_only(self, provider: Provider, tmp_path: Path) -> None:
        data = tmp_path / "data"
        data.mkdir()
        (data / "set").write_text("rows")
        spec = SandboxSpec(provider_options={"visible": [str(data), "/var/tmp"]})
        async with await OwnedSandbox.start(provider, spec, OWNER) as box:
            assert (await box.exec(f"cat {data}/set; ls {tmp_path}; ls -A {tmp_path.parent}")).stdout == f"rowsdata\n{tmp_path.name}\n"
            assert not (await box.exec(f"touch {data}/x || touch /var/tmp/x")).ok
        for spec in (
            {"provider_options": {"visible": [str(tmp_path)]}},
            {"workdir": "/opt/x/y", "provider_options": {"visible": ["/opt/x"]}},
        ):
            with pytest.raises(SandboxSpecError, match=r"the sandboxes themselves|private tree"):
                await OwnedSandbox.start(provider, SandboxSpec.model_validate(spec), OWNER)
        for path in ("/", "/proc/1", "relative", "/usr/../root"):
            with pytest.raises(SandboxSpecError, match="visible"):
                await OwnedSandbox.start(provider, SandboxSpec(provider_options={"visible": [path]}), OWNER)


class TestEnds:
    async def test_it_ends_with_its_keeper_and_can_be_swept(self, provider: Provider, box: OwnedSandbox, tmp_path: Path) -> None:
        running = asyncio.create_task(box.exec("setsid sleep 1234.5 & sleep 1234.5"))
        await asyncio.sleep(0.4)
        os.kill(keeper_of(box, tmp_path), signal.SIGKILL)
        assert (await running).error_type == "sandbox"
        async with asyncio.timeout(5):
            while processes_with(b"sleep\x001234.5"):  # noqa: ASYNC110 - the kernel's doing
                await asyncio.sleep(0.02)
        (record,) = await provider.find(run_id=OWNER.run_id)
        assert record.status is SandboxStatus.STOPPED
        assert await provider.sweep(run_id=OWNER.run_id) == [box.sandbox_id]

    async def test_a_stuck_keeper_does_not_stop_a_stop(self, box: OwnedSandbox, tmp_path: Path) -> None:
        os.kill(keeper_of(box, tmp_path), signal.SIGSTOP)
        await box.stop()
        assert processes_with(box.sandbox_id.encode()) == []

    async def test_trees_that_are_hard_to_remove_are_removed(self, box: OwnedSandbox) -> None:
        await box.exec("mkdir -p locked/in && touch locked/in/x && chmod 0 locked/in locked")
        deep = "p=$(printf 'd/%.0s' $(seq 600)); for i in 1 2 3; do mkdir -p $p && cd $p || exit; done; pwd | wc -c"
        assert int((await box.exec(deep)).stdout) > 3600
        await box.stop()

    async def test_its_limits_leave_no_control_groups(self, provider: Provider) -> None:
        if not provider.capabilities.limits:
            pytest.skip("no control groups can be made here (not root, or not writable)")
        spec = SandboxSpec(resources={"cpu": 0.5, "memory_mib": 64})
        async with await OwnedSandbox.start(provider, spec, OWNER) as box:
            busy = await box.exec("i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done & sleep 2; ps -o cputimes= -p $!; kill -9 $!")
            assert int(busy.stdout) <= 1, "half a CPU gives one second in two"
            assert control_groups(box.sandbox_id)
        assert not control_groups(box.sandbox_id)


class TestRefusals:
    async def test_a_missing_bubblewrap_is_one_line_that_helps(self, tmp_path: Path) -> None:
        made = provider_from_block("sandbox", {"local": {"root": str(tmp_path / "s"), "bwrap": "no-such-bwrap"}})
        with pytest.raises(SandboxError, match="install the Debian package bubblewrap") as failed:
            await OwnedSandbox.start(made, SandboxSpec(), OWNER)
        assert "\n" not in str(failed.value)
        assert not (tmp_path / "s").exists()

    async def test_without_namespaces_it_refuses(self, refusing_bwrap: Path, tmp_path: Path) -> None:
        made = provider_from_block("sandbox", {"local": {"root": str(tmp_path / "s"), "bwrap": str(refusing_bwrap)}})
        with pytest.raises(SandboxError, match=r"No permissions to create new namespace.*unconfined: true") as failed:
            await OwnedSandbox.start(made, SandboxSpec(ready_timeout_s=10), OWNER)
        assert failed.value.kind == "provider_unavailable"
        assert left_in(tmp_path / "s") == []

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"image": "debian"}, "it has no images"),
            ({"workdir": "/usr/src"}, "private tree"),
            ({"workdir": "/work/../etc"}, "private tree"),
            ({"files": {"/etc/passwd": "x"}}, "private tree"),
            ({"provider_options": {"unconfined": True}}, "unconfined"),
        ],
    )
    async def test_what_it_cannot_do(self, provider: Provider, spec: dict[str, Any], said: str) -> None:
        with pytest.raises(SandboxSpecError, match=said):
            await OwnedSandbox.start(provider, SandboxSpec.model_validate(spec), OWNER)

    async def test_a_root_that_others_can_enter(self, tmp_path: Path, need_bubblewrap: None) -> None:
        os.makedirs(tmp_path / "open")  # noqa: PTH103
        os.chmod(tmp_path / "open", 0o755)  # noqa: PTH101
        made = provider_from_block("sandbox", {"local": {"root": str(tmp_path / "open")}})
        with pytest.raises(SandboxError, match="can be entered by other users"):
            await OwnedSandbox.start(made, SandboxSpec(), OWNER)

    @pytest.mark.parametrize(
        "descriptor", [{"sandbox_id": "../x"}, {"sandbox_id": "nemo-gym-0123456789abcdef", "root": "rel"}, {"provider": "docker"}]
    )
    async def test_a_descriptor_that_is_not_ours(self, provider: Provider, descriptor: dict[str, Any], tmp_path: Path) -> None:
        with pytest.raises(SandboxError) as failed:
            await provider.connect(descriptor)
        assert failed.value.kind == "protocol_violation"


async def test_unconfined_says_so_and_still_leaves_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = provider_from_block("sandbox", {"local": {"root": str(tmp_path / "s"), "unconfined": True, "bwrap": "no-such-bwrap"}})
    assert "unconfined" in caplog.text
    with pytest.raises(SandboxSpecError, match="network"):
        await OwnedSandbox.start(made, SandboxSpec(network="none"), OWNER)
    async with await OwnedSandbox.start(made, SandboxSpec(), OWNER) as box:
        assert box.observations["confined"] is False
        assert (await box.exec("pwd")).stdout.strip() == box.workdir
        ended = await box.exec("(setsid env -i sleep 1234.25 &); sleep 1234.25", timeout_s=0.5)
        assert (ended.error_type, ended.cleanup_confirmed) == ("timeout", True)
        await box.exec("(setsid env -i sleep 1234.25 &)")
        assert len(processes_with(b"sleep\x001234.25")) == 1
    assert processes_with(b"sleep\x001234.25") == []
    assert left_in(tmp_path / "s") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else; all other tests run as this user anyway")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that everybody can run")
def test_it_works_without_root(need_bubblewrap: None) -> None:
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        os.chown(folder, 65534, 65534)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "gym\nwrote\ntimeout True\nby nobody\nfrozenset() []\n", done.stderr
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
