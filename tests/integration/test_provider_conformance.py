"""What every sandbox provider promises: the same tests for each, against the real thing."""

import asyncio
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.ownership import Ownership, new_sandbox_id
from gym.sandbox.provider import Provider, SandboxHandle
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxGoneError, SandboxSpec, SandboxSpecError, SandboxStatus
from tests.integration.sandbox_files import ALL_BYTES, check_bytes_survive

COUNT = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep -c '^sleep {}'"

ANOTHER_PROCESS = """
import asyncio, json, os, sys
from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec
from gym.protocol.access import SandboxAccess

async def main():
    task = json.loads(sys.stdin.read())
    provider = provider_from_block("sandbox", task["block"])
    if task["do"] == "borrow":
        box = await BorrowedSandbox.connect(SandboxAccess.model_validate(task["access"]), {"sandbox": provider})
        done = await box.exec("pwd; cat note")
        await box.upload(box.workdir + "/answer", done.stdout.encode())
        await provider.aclose()
    else:
        box = await OwnedSandbox.start(provider, SandboxSpec.model_validate(task["spec"]), Ownership(task["run"], "dead"))
        print(box.sandbox_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@dataclass
class Place:
    """A provider with what its tests need."""

    kind: str
    block: dict[str, Any]
    base: dict[str, Any]
    """What every spec needs."""
    provider: Provider
    owner: Ownership

    def spec(self, **fields: Any) -> SandboxSpec:
        """A spec that this provider can meet."""
        return SandboxSpec.model_validate({**self.base, **fields})

    async def start(self, **fields: Any) -> OwnedSandbox:
        """A sandbox of the test's run."""
        return await OwnedSandbox.start(self.provider, self.spec(**fields), self.owner)

    async def found(self) -> list[str]:
        """The sandboxes of the test's run that are there."""
        return [record.sandbox_id for record in await self.provider.find(run_id=self.owner.run_id)]


@pytest.fixture
def local_block(need_bubblewrap: None, tmp_path: Path) -> Iterator[dict[str, Any]]:
    root = tmp_path / "sandboxes"
    yield {"local": {"root": str(root)}, "default_metadata": {"team": "tests"}}
    left = [path.name for path in root.glob("*")] if root.exists() else []
    assert not left, f"folders of the test are left over: {left}"


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "local"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "docker":
        run_id = request.getfixturevalue("docker_run_id")
        block: dict[str, Any] = {"docker": {"create": {"network": "none"}}, "default_metadata": {"team": "tests"}}
        base: dict[str, Any] = {"image": "gym-base:bookworm", "workdir": "/work"}
    else:
        block, base, run_id = request.getfixturevalue("local_block"), {}, f"test-{new_sandbox_id()}"
    provider = provider_from_block("sandbox", block)
    yield Place(request.param, block, base, provider, Ownership(run_id, "swebench", episode_id="r1-a2", session_id="s1"))
    await provider.sweep(run_id=run_id)
    await provider.aclose()


@pytest.fixture
async def box(place: Place) -> AsyncIterator[OwnedSandbox]:
    async with await place.start() as sandbox:
        yield sandbox


async def sleepers(box: OwnedSandbox, seconds: int) -> int:
    return int((await box.exec(COUNT.format(seconds))).stdout)


def command_lines_of_this_host() -> bytes:
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += path.read_bytes()
    return found


def another_process(**task: Any) -> "subprocess.Popen[bytes]":
    started = subprocess.Popen([sys.executable, "-c", ANOTHER_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdin
    with started.stdin as stdin:
        stdin.write(orjson.dumps(task))
    return started


class TestCreate:
    async def test_a_sandbox_is_what_its_spec_says(self, place: Place) -> None:
        box = await place.start(
            workdir="/work/deep",
            ttl_s=300,
            env={"GREETING": "hello there"},
            files={"/data/in/a.txt": "text", "/data/b.bin": b"\x00\xff"},
            metadata={"task": "t1"},
        )
        async with box:
            assert re.fullmatch("nemo-gym-[0-9a-f]{32}", box.sandbox_id)
            assert box.workdir == "/work/deep"
            said = await box.exec('echo "$PWD $GREETING"; cat /data/in/a.txt; cat /data/b.bin | wc -c')
            assert said.stdout == "/work/deep hello there\ntext2\n"
            (record,) = await place.provider.find(run_id=place.owner.run_id)
            labels = record.labels
            assert (record.sandbox_id, record.status) == (box.sandbox_id, SandboxStatus.RUNNING)
            assert labels["nemo-gym.sandbox"] == "1"
            assert labels["nemo-gym.instance"] == "swebench"
            assert labels["nemo-gym.episode-id"] == "r1-a2"
            assert labels["nemo-gym.session-id"] == "s1"
            assert labels["nemo-gym.role"] == "task"
            assert labels["nemo-gym.meta.team"] == "tests"
            assert labels["nemo-gym.meta.task"] == "t1"
            assert 0 < int(labels["nemo-gym.expires-at"]) - time.time() <= 301
            assert {"nemo-gym.owner-host", "nemo-gym.owner-pid", "nemo-gym.owner-boot-id"} <= set(labels)
            assert box.observations["create_s"] > 0
        assert not await box.alive()
        assert await place.found() == []

    async def test_a_user_can_be_given_where_the_provider_says_so(self, place: Place) -> None:
        if place.provider.capabilities.users:
            async with await place.start(user="nobody") as box:
                assert (await box.exec("id -un")).stdout == "nobody\n"
                assert (await box.exec("id -u", user="root")).stdout == "0\n"
        else:
            with pytest.raises(SandboxSpecError, match="user 'nobody'"):
                await place.start(user="nobody")
            async with await place.start() as box:
                with pytest.raises(SandboxSpecError, match="user 'nobody'"):
                    await box.exec("true", user="nobody")

    async def test_its_time_to_live_ends_it(self, place: Place) -> None:
        box = await place.start(ttl_s=1)
        async with asyncio.timeout(15):
            while await place.found():  # noqa: ASYNC110 - another program's doing
                await asyncio.sleep(0.1)
        assert await box.status() is SandboxStatus.STOPPED
        await box.stop()

    async def test_a_service_runs_beside(self, place: Place) -> None:
        async with await place.start(entrypoint=["sh", "-c", "echo $1 >/tmp/up; exec sleep 1234", "sh", "two words"], ttl_s=60) as box:
            await asyncio.sleep(0.2)
            assert (await box.exec("cat /tmp/up")).stdout == "two words\n"
            assert await sleepers(box, 1234) == 1

    @pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.3])
    async def test_a_cancelled_create_leaves_nothing(self, place: Place, after: float) -> None:
        creating = asyncio.create_task(place.start())
        await asyncio.sleep(after)
        creating.cancel()
        with suppress(asyncio.CancelledError):
            await (await creating).stop()  # it was faster than the cancellation
        assert await place.found() == []

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"network": "no-such-network"}, "no-such-network"),
            ({"provider_options": {"pids_limit": 64, "pids_limt": 1}}, "pids_limt"),
            ({"files": {"/proc/nope/x": "y"}}, "/proc/nope/x|upload"),
            ({"ports": [80]}, "ports"),
            ({"resources": {"gpu": 99}}, "gpu"),
            ({"resource_requests": {"memory_mib": 10**9}}, "memory_mib"),
        ],
    )
    async def test_a_failed_create_says_why_and_leaves_nothing(self, place: Place, spec: dict[str, object], said: str) -> None:
        with pytest.raises(SandboxError, match=said) as failed:
            await place.start(**spec)
        assert "\n" not in str(failed.value)
        assert await place.found() == []

    async def test_another_ones_sandbox_of_that_id_is_left_alone(self, place: Place, box: OwnedSandbox) -> None:
        with pytest.raises(SandboxSpecError, match="already in use"):
            await OwnedSandbox.start(place.provider, place.spec(), place.owner, sandbox_id=box.sandbox_id)
        assert (await box.exec("true")).ok
        with pytest.raises(SandboxSpecError, match="no sandbox id"):
            await OwnedSandbox.start(place.provider, place.spec(), place.owner, sandbox_id="../../etc")

    async def test_limits_are_enforced_where_they_are_declared(self, place: Place) -> None:
        if "memory_mib" not in place.provider.capabilities.limits:
            with pytest.raises(SandboxSpecError, match="a limit on memory_mib"):
                await place.start(resources={"memory_mib": 64})
            return
        async with await place.start(resources={"cpu": 4096, "memory_mib": 64, "disk_gib": 30}) as box:
            assert box.observations["clamped"] == {"cpu": 4096}
            assert 0 < box.observations["limits"]["cpu"] < 4096
            greedy = await box.exec("head -c 300000000 /dev/zero | tail -c 299999999 | wc -c")
            assert greedy.stdout.strip() == "0", greedy
            assert (greedy.return_code, greedy.oom_killed) == (0, True), "a pipe hides the code, and not what happened"
            alone = await box.exec("all=$(head -c 300000000 /dev/zero | tr '\\0' x)")
            assert (alone.return_code, alone.oom_killed, alone.error_type) == (137, True, None)
            killed = await box.exec("kill -9 $$")
            assert (killed.return_code, killed.oom_killed) == (137, False)
            assert await box.alive()
            assert (await box.exec("echo still here")).stdout == "still here\n"


class TestExec:
    async def test_a_command_reports_itself(self, box: OwnedSandbox) -> None:
        done = await box.exec("echo out; echo err >&2; exit 7")
        assert (done.stdout, done.stderr, done.return_code, done.error_type) == ("out\n", "err\n", 7, None)
        assert (await box.exec('echo "$A"', env={"A": 'it\'s "quoted" $x'})).stdout == 'it\'s "quoted" $x\n'
        assert (await box.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        assert (await box.exec("cat")).ok, "stdin is empty unless given"
        assert (await box.exec("printf 'a\\377b'")).stdout == "a\ufffdb"
        nowhere = await box.exec("true", cwd="/nowhere")
        assert (nowhere.return_code, nowhere.error_type) == (126, None)
        assert (await box.exec("kill -9 $$")).return_code == 137, "a killed command in a box that lives is a failed command"
        for bad in ({"A=B": "x"}, {"A": "x\0y"}):
            with pytest.raises(SandboxSpecError, match="environment variable"):
                await box.exec("true", env=bad)
        with pytest.raises(SandboxSpecError, match="NUL"):
            await box.exec("echo \0")
        with pytest.raises(SandboxSpecError, match="positive"):
            await box.exec("true", timeout_s=0)

    async def test_stdin_and_long_commands_arrive_whole(self, box: OwnedSandbox) -> None:
        fed = await box.exec("sha256sum", stdin=ALL_BYTES)
        assert fed.stdout.split()[0] == hashlib.sha256(ALL_BYTES).hexdigest()
        assert (await box.exec("exec 0<&-; echo deaf", stdin=ALL_BYTES)).stdout == "deaf\n"
        text = "line with 'quotes' and $dollar\n" * 20_000
        long = await box.exec(f"cat <<'END' | sha256sum\n{text}END\nexit 3")
        assert long.stdout.split()[0] == hashlib.sha256(text.encode()).hexdigest()
        assert long.return_code == 3

    async def test_output_is_bounded_and_says_so(self, box: OwnedSandbox) -> None:
        flood = await box.exec("echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last", max_output_bytes=4000)
        assert flood.truncated
        assert len(flood.stdout) < 4200
        assert flood.stdout.startswith("first\n")
        assert flood.stdout.endswith("\nlast\n")
        assert "bytes left out" in flood.stdout

    async def test_output_goes_whole_into_a_file(self, box: OwnedSandbox, tmp_path: Path) -> None:
        file = tmp_path / "stdout"
        file.write_bytes(b"of an earlier command" * 10_000_000)
        script = "seq 3000000; echo not this >&2; exit 3"
        done = await box.exec(script, max_output_bytes=4000, output_file=file)
        assert (done.return_code, done.truncated, done.stderr) == (3, True, "not this\n")
        assert file.read_text() == "".join(f"{number}\n" for number in range(1, 3_000_001))

    async def test_a_file_that_cannot_take_the_output_ends_the_command(self, box: OwnedSandbox, tmp_path: Path) -> None:
        with pytest.raises(SandboxError, match="cannot be written to '/dev/full': No space left on device; the command was ended") as full:
            await box.exec("echo line; sleep 1234", output_file=Path("/dev/full"), timeout_s=30)
        assert full.value.kind == "persistence_failed"
        assert await sleepers(box, 1234) == 0
        with pytest.raises(SandboxError, match="No such file or directory"):
            await box.exec("sleep 1234", output_file=tmp_path / "missing" / "file")
        assert await box.alive()

    async def test_a_timeout_ends_the_whole_tree(self, box: OwnedSandbox) -> None:
        await box.exec("sleep 4321 >/dev/null 2>&1 &")
        script = (
            "echo started; setsid sleep 1234 & nohup sleep 1234 >/dev/null 2>&1 & (env -i sleep 1234 & sleep 1234) & "
            "( (setsid sh -c 'trap \"\" TERM; sleep 1234; true' &) & ); sleep 1234"
        )
        began = time.monotonic()
        ended = await box.exec(script, timeout_s=1)
        assert time.monotonic() - began < 10
        assert (ended.error_type, ended.return_code) == ("timeout", 124)
        assert ended.stdout == "started\n", "what was printed before is kept"
        assert ended.cleanup_confirmed
        assert await sleepers(box, 1234) == 0
        assert await sleepers(box, 4321) == 1, "what belongs to another command lives on"

    async def test_a_timeout_ends_a_fork_bomb(self, place: Place) -> None:
        async with await place.start(provider_options={"pids_limit": 64}) as box:
            ended = await box.exec("bomb() { sleep 1234 & bomb & bomb; }; bomb 2>/dev/null", timeout_s=1)
            assert ended.error_type == "timeout"
            if not ended.cleanup_confirmed:  # a busy machine can be outrun, which is then said; the box itself always ends
                return
            assert await sleepers(box, 1234) == 0

    @pytest.mark.parametrize("after", [0.0, 0.03, 0.5])
    async def test_a_cancelled_command_ends_inside_too(self, box: OwnedSandbox, after: float) -> None:
        running = asyncio.create_task(box.exec("setsid sleep 1234 & sleep 1234"))
        await asyncio.sleep(after)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await sleepers(box, 1234) == 0

    async def test_a_child_left_behind_does_not_hold_the_command(self, box: OwnedSandbox) -> None:
        began = time.monotonic()
        done = await box.exec("sleep 1234 & echo ready", timeout_s=30)
        assert done.stdout == "ready\n"
        assert time.monotonic() - began < 6
        assert await sleepers(box, 1234) == 1

    async def test_a_dead_box_is_told_from_a_failed_command(self, box: OwnedSandbox, place: Place) -> None:
        running = asyncio.create_task(box.exec("echo begun; sleep 60"))
        await asyncio.sleep(0.5)
        await place.provider.close(await place.provider.connect(place.provider.serialize(box._handle)))
        ended = await running
        assert (ended.return_code, ended.error_type) == (125, "sandbox")
        assert ended.stdout == "begun\n"
        assert (await box.exec("true")).error_type == "sandbox"
        assert not await box.alive()
        with pytest.raises(SandboxGoneError) as gone:
            await box.download("/etc/passwd")
        assert gone.value.kind == "session_lost"
        with pytest.raises(SandboxGoneError):
            await box.upload("/x", b"")
        await box.stop()

    async def test_secrets_are_in_no_command_line_of_the_host(self, place: Place) -> None:
        async with await place.start(env={"OTHER": "s3cret-of-the-spec"} if place.kind == "local" else {}) as box:
            running = asyncio.create_task(box.exec("sleep 1.5", env={"TOKEN": "s3cret-value"}, stdin=b"s3cret-value"))
            await asyncio.sleep(0.7)
            seen = command_lines_of_this_host()
            assert b"sleep\x001.5" in seen
            assert b"s3cret" not in seen
            assert (await running).ok

    async def test_many_commands_at_once(self, box: OwnedSandbox) -> None:
        done = await asyncio.gather(*(box.exec(f"sleep 0.3; echo {number}") for number in range(32)))
        assert [result.stdout for result in done] == [f"{number}\n" for number in range(32)]


async def test_bytes_of_files_survive(box: OwnedSandbox, tmp_path: Path) -> None:
    await check_bytes_survive(box, tmp_path)


class TestIsolation:
    async def test_sandboxes_do_not_see_each_other(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("of the host")
        async with await place.start() as one, await place.start() as two:
            await one.exec("echo mine >/work/file; echo mine >/tmp/file; echo mine >/dev/shm/file; sleep 1234 >/dev/null 2>&1 &")
            assert (await two.exec("cat /work/file /tmp/file /dev/shm/file")).stdout == ""
            assert await sleepers(two, 1234) == 0
            assert await sleepers(one, 1234) == 1
            for path in (tmp_path / "secret", Path(__file__), "/var/run/docker.sock", "/run/docker.sock"):
                assert (await two.exec(f"ls {path}")).return_code == 2, path
            await two.exec("kill -9 -1")
            assert await sleepers(one, 1234) == 1

    async def test_no_network_is_none(self, box: OwnedSandbox) -> None:
        links = await box.exec("cat /proc/net/dev")
        assert re.findall(r"^\s*(\w+):", links.stdout, re.MULTILINE) == ["lo"]
        with socket.create_server(("0.0.0.0", 0)) as server:
            port = server.getsockname()[1]
            for address in ("127.0.0.1", socket.gethostbyname(socket.gethostname())):
                assert not (await box.exec(f"exec 3<>/dev/tcp/{address}/{port}", timeout_s=10)).ok
                socket.create_connection((address, port), 5).close()

    async def test_a_network_where_it_is_asked_for(self, place: Place) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with await place.start(network="host") as box:
                assert (await box.exec(f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}", timeout_s=10)).ok


class TestOwnership:
    async def test_a_borrower_works_in_it_and_cannot_stop_it(self, place: Place, box: OwnedSandbox) -> None:
        access = box.serialize("sandbox")
        assert box.sandbox_id in access.model_dump_json()
        elsewhere = provider_from_block("sandbox", {place.kind: {}})
        async with await BorrowedSandbox.connect(access, {"sandbox": elsewhere}) as borrowed:
            assert (await borrowed.exec("pwd")).stdout == "/work\n"
            await borrowed.upload("/work/note", b"mine")
            assert not hasattr(borrowed, "stop")
            assert not hasattr(borrowed, "serialize")
        with pytest.raises(SandboxGoneError, match="disconnected"):
            await borrowed.exec("true")
        await elsewhere.aclose()
        assert await box.download("/work/note") == b"mine"
        with pytest.raises(SandboxError, match="no sandbox provider block 'sandbox'"):
            await BorrowedSandbox.connect(access, {"other": place.provider})
        await box.stop()
        with pytest.raises(SandboxGoneError):
            await BorrowedSandbox.connect(access, {"sandbox": place.provider})

    async def test_another_process_works_in_it(self, place: Place, box: OwnedSandbox) -> None:
        await box.upload("/work/note", b"from the owner")
        borrower = another_process(do="borrow", block=place.block, access=box.serialize("sandbox").model_dump(mode="json"))
        assert await asyncio.to_thread(borrower.wait, 30) == 0
        assert borrower.stdout
        borrower.stdout.close()
        assert await box.download("/work/answer") == b"/work\nfrom the owner"
        assert await box.alive()

    async def test_it_outlives_an_owner_that_was_killed_until_somebody_sweeps(self, place: Place) -> None:
        owner = another_process(do="own", block=place.block, run=place.owner.run_id, spec=place.base)
        assert owner.stdout
        sandbox_id = (await asyncio.to_thread(owner.stdout.readline)).decode().strip()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        (record,) = await place.provider.find(run_id=place.owner.run_id, instance="dead")
        assert (record.sandbox_id, record.status) == (sandbox_id, SandboxStatus.RUNNING)
        assert record.labels["nemo-gym.owner-pid"] == str(owner.pid)
        assert await place.provider.sweep(run_id=place.owner.run_id) == [sandbox_id]
        assert await place.found() == []

    async def test_a_sweep_takes_what_its_labels_say(self, place: Place) -> None:
        other = Ownership(place.owner.run_id, "other-server", "verifier")
        mine, theirs = await asyncio.gather(place.start(), OwnedSandbox.start(place.provider, place.spec(), other))
        assert await place.provider.sweep(run_id=place.owner.run_id, instance="swebench") == [mine.sandbox_id]
        assert not await mine.alive()
        assert await theirs.alive()
        assert await place.provider.sweep(run_id=place.owner.run_id) == [theirs.sandbox_id]
        assert await place.provider.sweep(run_id=place.owner.run_id) == []
        with pytest.raises(SandboxSpecError, match="run id"):
            await place.provider.sweep(run_id="")

    async def test_a_stop_can_be_repeated_and_says_so_afterwards(self, place: Place) -> None:
        box = await place.start()
        handle = box._handle
        await asyncio.gather(place.provider.close(handle), place.provider.close(handle))
        await place.provider.close(handle)
        await box.stop()
        await box.stop()
        other = await place.start()
        await place.provider.close(SandboxHandle(other.sandbox_id, "/"))  # whoever releases what is left knows no more than the id
        assert not await other.alive()
        with pytest.raises(SandboxGoneError, match="stopped by its owner"):
            await box.exec("true")

    async def test_a_cancelled_stop_still_ends_it(self, place: Place) -> None:
        box = await place.start()
        stopping = asyncio.create_task(box.stop())
        await asyncio.sleep(0.001)
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
        assert await place.found() == []
