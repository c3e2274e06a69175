"""The Docker provider against a real engine: what it promises when things go wrong, above all."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.ownership import Ownership, new_sandbox_id
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxFileError, SandboxGoneError, SandboxSpec, SandboxSpecError, SandboxStatus

pytestmark = pytest.mark.docker

IMAGE = "gym-base:bookworm"
ALL_BYTES = bytes(range(256)) * 3000
COUNT = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep -c '^sleep {}'"


@pytest.fixture
async def provider(docker_run_id: str) -> AsyncIterator[Provider]:
    made = provider_from_block("sandbox", {"docker": {"create": {"network": "none"}}, "default_metadata": {"team": "tests"}})
    yield made
    await made.sweep(run_id=docker_run_id)
    await made.aclose()


@pytest.fixture
def owner(docker_run_id: str) -> Ownership:
    return Ownership(docker_run_id, "swebench", episode_id="r1-a2", session_id="s1")


@pytest.fixture
async def box(provider: Provider, owner: Ownership) -> AsyncIterator[OwnedSandbox]:
    async with await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE, workdir="/work"), owner) as sandbox:
        yield sandbox


async def sleepers(box: OwnedSandbox, seconds: int) -> int:
    return int((await box.exec(COUNT.format(seconds))).stdout)


def command_lines_of_this_host() -> bytes:
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += path.read_bytes()
    return found


async def until_none_is_left(provider: Provider, run_id: str, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while await provider.find(run_id=run_id):  # noqa: ASYNC110 - another program's doing
            await asyncio.sleep(0.1)


async def test_a_sandbox_is_what_its_spec_says(provider: Provider, owner: Ownership) -> None:
    spec = SandboxSpec(
        image=IMAGE,
        workdir="/work/deep",
        user="nobody",
        ttl_s=300,
        env={"GREETING": "hello there"},
        files={"/data/in/a.txt": "text", "/data/b.bin": b"\x00\xff"},
        metadata={"task": "t1"},
        resources={"cpu": 0.5, "memory_mib": 256},
    )
    async with await OwnedSandbox.start(provider, spec, owner) as box:
        assert box.sandbox_id.startswith("nemo-gym-")
        said = await box.exec('echo "$PWD $GREETING $(id -un)"; cat /data/in/a.txt; cat /data/b.bin | wc -c')
        assert said.stdout == "/work/deep hello there nobody\ntext2\n"
        assert (await box.exec("id -u", user="root")).stdout == "0\n"
        limit = await box.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null")
        assert limit.stdout.strip() == str(256 * 1024 * 1024)
        (record,) = await provider.find(run_id=owner.run_id)
        labels = record.labels
        assert record.sandbox_id == box.sandbox_id
        assert record.status is SandboxStatus.RUNNING
        assert labels["nemo-gym.sandbox"] == "1"
        assert labels["nemo-gym.instance"] == "swebench"
        assert labels["nemo-gym.episode-id"] == "r1-a2"
        assert labels["nemo-gym.session-id"] == "s1"
        assert labels["nemo-gym.role"] == "task"
        assert labels["nemo-gym.meta.team"] == "tests"
        assert labels["nemo-gym.meta.task"] == "t1"
        assert 0 < int(labels["nemo-gym.expires-at"]) - time.time() <= 301
        assert {"nemo-gym.owner-host", "nemo-gym.owner-pid", "nemo-gym.owner-boot-id"} <= set(labels)
        assert box.observations["image_id"].startswith("sha256:")
    await box.stop()
    assert not await box.alive()
    with pytest.raises(SandboxGoneError, match="stopped by its owner"):
        await box.exec("true")


async def test_a_command_reports_itself(box: OwnedSandbox) -> None:
    done = await box.exec("echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.return_code, done.error_type) == ("out\n", "err\n", 7, None)
    assert (await box.exec('echo "$A"', env={"A": 'it\'s "quoted" $x'})).stdout == 'it\'s "quoted" $x\n'
    assert (await box.exec("pwd", cwd="/usr")).stdout == "/usr\n"
    assert (await box.exec("cat")).ok, "stdin is empty unless given"
    assert (await box.exec("printf 'a\\377b'")).stdout == "a\ufffdb"
    nowhere = await box.exec("true", cwd="/nowhere")
    assert nowhere.return_code == 126
    assert nowhere.error_type is None
    assert (await box.exec("kill -9 $$")).return_code == 137, "a killed command in a box that lives is a failed command"
    for bad in ({"A=B": "x"}, {"A": "x\0y"}):
        with pytest.raises(SandboxSpecError, match="environment variable"):
            await box.exec("true", env=bad)
    with pytest.raises(SandboxSpecError, match="NUL"):
        await box.exec("echo \0")


async def test_stdin_and_long_commands_arrive_whole(box: OwnedSandbox) -> None:
    fed = await box.exec("sha256sum", stdin=ALL_BYTES)
    assert fed.stdout.split()[0] == hashlib.sha256(ALL_BYTES).hexdigest()
    assert (await box.exec("exec 0<&-; echo deaf", stdin=ALL_BYTES)).stdout == "deaf\n"
    text = "line with 'quotes' and $dollar\n" * 20_000
    long = await box.exec(f"cat <<'END' | sha256sum\n{text}END\nexit 3")
    assert long.stdout.split()[0] == hashlib.sha256(text.encode()).hexdigest()
    assert long.return_code == 3


async def test_output_is_bounded_and_says_so(box: OwnedSandbox) -> None:
    flood = await box.exec("echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last", max_output_bytes=4000)
    assert flood.truncated
    assert len(flood.stdout) < 4200
    assert flood.stdout.startswith("first\n")
    assert flood.stdout.endswith("\nlast\n")
    assert "bytes left out" in flood.stdout


@pytest.mark.parametrize("user", [None, "nobody"])
async def test_a_timeout_ends_the_whole_tree(box: OwnedSandbox, user: str | None) -> None:
    await box.exec("sleep 4321 >/dev/null 2>&1 &")
    script = (
        "echo started; setsid sleep 1234 & nohup sleep 1234 >/dev/null 2>&1 & (env -i sleep 1234 & sleep 1234) & "
        "( (setsid sh -c 'trap \"\" TERM; sleep 1234; true' &) & ); sleep 1234"
    )
    began = time.monotonic()
    ended = await box.exec(script, timeout_s=1, user=user)
    assert time.monotonic() - began < 10
    assert ended.error_type == "timeout"
    assert ended.return_code == 124
    assert ended.stdout == "started\n", "what was printed before is kept"
    assert ended.cleanup_confirmed
    assert await sleepers(box, 1234) == 0
    assert await sleepers(box, 4321) == 1, "what belongs to another command lives on"


async def test_a_timeout_ends_a_fork_bomb(provider: Provider, owner: Ownership) -> None:
    spec = SandboxSpec(image=IMAGE, provider_options={"pids_limit": 64})
    async with await OwnedSandbox.start(provider, spec, owner) as box:
        ended = await box.exec("bomb() { sleep 1234 & bomb & bomb; }; bomb 2>/dev/null", timeout_s=1)
        assert ended.error_type == "timeout"
        assert ended.cleanup_confirmed
        assert await sleepers(box, 1234) == 0


async def test_a_kill_that_cannot_be_confirmed_is_not_claimed(box: OwnedSandbox) -> None:
    ended = await box.exec("rm -f /bin/sh /usr/bin/sh; exec sleep 1234", timeout_s=0.5)
    assert ended.error_type == "timeout"
    assert not ended.cleanup_confirmed


@pytest.mark.parametrize("after", [0.0, 0.02, 0.06, 0.5])
async def test_a_cancelled_command_ends_inside_too(box: OwnedSandbox, after: float) -> None:
    running = asyncio.create_task(box.exec("setsid sleep 1234 & sleep 1234"))
    await asyncio.sleep(after)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sleepers(box, 1234) == 0


async def test_a_child_left_behind_does_not_hold_the_command(box: OwnedSandbox) -> None:
    began = time.monotonic()
    done = await box.exec("sleep 1234 & echo ready", timeout_s=30)
    assert done.stdout == "ready\n"
    assert time.monotonic() - began < 6
    assert await sleepers(box, 1234) == 1


async def test_a_dead_box_is_told_from_a_failed_command(box: OwnedSandbox, provider: Provider) -> None:
    running = asyncio.create_task(box.exec("echo begun; sleep 60"))
    await asyncio.sleep(0.5)
    await provider.close(await provider.connect({"sandbox_id": box.sandbox_id}))
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


async def test_secrets_are_in_no_command_line_of_the_host(box: OwnedSandbox) -> None:
    running = asyncio.create_task(box.exec("sleep 1.5", env={"TOKEN": "s3cret-value"}, stdin=b"s3cret-value"))
    await asyncio.sleep(0.7)
    seen = command_lines_of_this_host()
    assert b"sleep\x001.5" in seen
    assert b"s3cret-value" not in seen
    assert (await running).ok


class TestFiles:
    @pytest.mark.parametrize("options", [{}, {"read_only": True, "tmpfs": {"/work": "size=64m", "/tmp": ""}}], ids=["archive", "command"])
    async def test_bytes_survive(self, provider: Provider, owner: Ownership, tmp_path: Path, options: dict[str, object]) -> None:
        spec = SandboxSpec(image=IMAGE, workdir="/work", provider_options=options, files={"/work/given": b"\x00given"})
        async with await OwnedSandbox.start(provider, spec, owner) as box:
            assert await box.download("/work/given") == b"\x00given"
            await box.upload("/work/new folder/it's.bin", ALL_BYTES, mode=0o755)
            assert await box.download("/work/new folder/it's.bin") == ALL_BYTES
            assert (await box.exec("stat -c %a /work/new*/*.bin")).stdout == "755\n"
            await box.upload("/work/empty", b"")
            assert await box.download("/work/empty") == b""
            big = tmp_path / "big"
            big.write_bytes(ALL_BYTES * 4 + b"odd")
            await box.upload("/work/big", big)
            assert await box.download("/work/big") == big.read_bytes()
            await box.exec("ln -s /work/big /work/link; ln -s /nowhere /work/dangling; mkfifo /work/pipe")
            assert await box.download("/work/link") == big.read_bytes()
            with pytest.raises(SandboxFileError, match="there is no file '/work/missing'"):
                await box.download("/work/missing")
            await box.upload("/dev/shm/shared", b"memory")
            assert (await box.exec("cat /dev/shm/shared")).stdout == "memory"
            assert await box.download("/dev/shm/shared") == b"memory"
            for odd in ("/work/dangling", "/work/pipe", "/work", "/dev/zero"):
                with pytest.raises(SandboxFileError):
                    await box.download(odd)
            with pytest.raises(SandboxFileError, match="longer than the 1000 bytes"):
                await box.download("/work/big", max_bytes=1000)
            with pytest.raises(SandboxFileError, match="not a file here"):
                await box.upload("/work/x", tmp_path / "missing")
            for bad in ("relative", "/folder/"):
                with pytest.raises(SandboxSpecError, match="absolute path"):
                    await box.upload(bad, b"")


class TestCreate:
    async def test_its_time_to_live_ends_it(self, provider: Provider, owner: Ownership) -> None:
        box = await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE, ttl_s=1), owner)
        await until_none_is_left(provider, owner.run_id, 15)
        assert await box.status() is SandboxStatus.STOPPED
        await box.stop()

    async def test_a_service_runs_beside(self, provider: Provider, owner: Ownership) -> None:
        spec = SandboxSpec(image=IMAGE, entrypoint=["sh", "-c", "echo $1 >/tmp/up; exec sleep 1234", "sh", "two words"], ttl_s=60)
        async with await OwnedSandbox.start(provider, spec, owner) as box:
            await asyncio.sleep(0.2)
            assert (await box.exec("cat /tmp/up")).stdout == "two words\n"
            assert await sleepers(box, 1234) == 1

    @pytest.mark.parametrize("after", [0.0, 0.01, 0.05, 0.15, 0.3, 0.45])
    async def test_a_cancelled_create_leaves_nothing(self, provider: Provider, owner: Ownership, after: float) -> None:
        creating = asyncio.create_task(OwnedSandbox.start(provider, SandboxSpec(image=IMAGE), owner))
        await asyncio.sleep(after)
        creating.cancel()
        with suppress(asyncio.CancelledError):
            await (await creating).stop()  # it was faster than the cancellation
        assert await provider.find(run_id=owner.run_id) == []

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"network": "no-such-network"}, "no-such-network"),
            ({"user": "no-such-user"}, "no-such-user"),
            ({"provider_options": {"volumes": ["/etc:/etc:nonsense"]}}, "nonsense"),
            ({"provider_options": {"pids_limit": 64, "cap_drp": []}}, "cap_drp"),
            ({"provider_options": {"volumes": ["relative"]}}, "volume"),
            ({"files": {"/proc/nope/x": "y"}}, "upload"),
            ({"ports": [80]}, "ports"),
            ({"resource_requests": {"memory_mib": 10**9}}, "memory_mib"),
        ],
    )
    async def test_a_failed_create_says_why_and_leaves_nothing(
        self, provider: Provider, owner: Ownership, spec: dict[str, object], said: str
    ) -> None:
        with pytest.raises(SandboxError, match=said):
            await OwnedSandbox.start(provider, SandboxSpec.model_validate({"image": IMAGE, **spec}), owner)
        assert await provider.find(run_id=owner.run_id) == []

    async def test_another_ones_container_of_that_name_is_left_alone(self, provider: Provider, owner: Ownership) -> None:
        sandbox_id = new_sandbox_id()
        async with await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE), owner, sandbox_id=sandbox_id) as box:
            with pytest.raises(SandboxSpecError, match="already in use"):
                await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE), owner, sandbox_id=sandbox_id)
            assert await box.alive()

    async def test_limits_above_the_host_are_clamped_and_recorded(self, provider: Provider, owner: Ownership) -> None:
        spec = SandboxSpec(image=IMAGE, resources={"cpu": 4096, "memory_mib": 64, "disk_gib": 30})
        async with await OwnedSandbox.start(provider, spec, owner) as box:
            assert box.observations["clamped"] == {"cpu": 4096}
            assert 0 < box.observations["limits"]["cpu"] < 4096

    async def test_images_that_are_not_there(self, docker_run_id: str, owner: Ownership) -> None:
        never = provider_from_block("sandbox", {"docker": {"create": {"pull": "never"}}})
        with pytest.raises(SandboxError, match="build or pull it first"):
            await OwnedSandbox.start(never, SandboxSpec(image="gym-test/missing:1"), owner)
        await never.aclose()
        once = provider_from_block("sandbox", {"docker": {"create": {"pull_attempts": 1}}})
        with pytest.raises(SandboxError, match="could not be pulled") as failed:
            await OwnedSandbox.start(once, SandboxSpec(image="127.0.0.1:9/gym-test/missing:1"), owner)
        assert failed.value.kind == "provider_unavailable"
        await once.aclose()


async def test_a_borrower_works_in_it_and_cannot_stop_it(box: OwnedSandbox, provider: Provider) -> None:
    access = box.serialize("sandbox")
    assert box.sandbox_id in access.model_dump_json()
    elsewhere = provider_from_block("sandbox", {"docker": {}})
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
        await BorrowedSandbox.connect(access, {"other": provider})
    await box.stop()
    with pytest.raises(SandboxGoneError):
        await BorrowedSandbox.connect(access, {"sandbox": provider})


async def test_a_sweep_takes_what_its_labels_say(provider: Provider, owner: Ownership) -> None:
    spec = SandboxSpec(image=IMAGE)
    other = Ownership(owner.run_id, "other-server", "verifier")
    mine, theirs = await asyncio.gather(OwnedSandbox.start(provider, spec, owner), OwnedSandbox.start(provider, spec, other))
    assert await provider.sweep(run_id=owner.run_id, instance="swebench") == [mine.sandbox_id]
    assert not await mine.alive()
    assert await theirs.alive()
    assert await provider.sweep(run_id=owner.run_id) == [theirs.sandbox_id]
    assert await provider.sweep(run_id=owner.run_id) == []
    with pytest.raises(SandboxSpecError, match="run id"):
        await provider.sweep(run_id="")


async def test_many_commands_at_once(box: OwnedSandbox) -> None:
    done = await asyncio.gather(*(box.exec(f"sleep 0.3; echo {number}") for number in range(32)))
    assert [result.stdout for result in done] == [f"{number}\n" for number in range(32)]


async def test_an_engine_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    nobody = provider_from_block("sandbox", {"docker": {"host": f"unix://{tmp_path}/docker.sock"}})
    with pytest.raises(SandboxError) as failed:
        await OwnedSandbox.start(nobody, SandboxSpec(image=IMAGE), Ownership("r", "i"))
    assert failed.value.kind == "provider_unavailable"
    assert "no Docker engine answers at unix://" in str(failed.value)
    assert "\n" not in str(failed.value)
    await nobody.aclose()
