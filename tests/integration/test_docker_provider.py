"""The Docker provider against a real engine: what it promises when things go wrong, above all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxError, SandboxSpec
from tests.integration.sandbox_files import check_bytes_survive

pytestmark = pytest.mark.docker

IMAGE = "gym-base:bookworm"
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


async def test_it_is_a_container_of_the_image_with_the_limits_of_its_spec(provider: Provider, owner: Ownership) -> None:
    async with await OwnedSandbox.start(provider, SandboxSpec(image=IMAGE, resources={"cpu": 0.5, "memory_mib": 256}), owner) as box:
        limit = await box.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null")
        assert limit.stdout.strip() == str(256 * 1024 * 1024)
        assert box.observations["image_id"].startswith("sha256:")


async def test_a_timeout_ends_what_another_user_started(box: OwnedSandbox) -> None:
    await box.exec("sleep 4321 >/dev/null 2>&1 &")
    ended = await box.exec("setsid sleep 1234 & (env -i sleep 1234 & sleep 1234) & sleep 1234", timeout_s=1, user="nobody")
    assert ended.error_type == "timeout"
    assert ended.cleanup_confirmed
    assert await sleepers(box, 1234) == 0
    assert await sleepers(box, 4321) == 1


async def test_a_kill_that_cannot_be_confirmed_is_not_claimed(box: OwnedSandbox) -> None:
    ended = await box.exec("rm -f /bin/sh /usr/bin/sh; exec sleep 1234", timeout_s=0.5)
    assert ended.error_type == "timeout"
    assert not ended.cleanup_confirmed


class TestFiles:
    async def test_bytes_survive_by_command_too(self, provider: Provider, owner: Ownership, tmp_path: Path) -> None:
        options = {"read_only": True, "tmpfs": {"/work": "size=64m", "/tmp": ""}}
        spec = SandboxSpec(image=IMAGE, workdir="/work", provider_options=options, files={"/work/given": b"\x00given"})
        async with await OwnedSandbox.start(provider, spec, owner) as box:
            assert await box.download("/work/given") == b"\x00given"
            await check_bytes_survive(box, tmp_path)


class TestCreate:
    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"user": "no-such-user"}, "no-such-user"),
            ({"provider_options": {"volumes": ["/etc:/etc:nonsense"]}}, "nonsense"),
            ({"provider_options": {"pids_limit": 64, "cap_drp": []}}, "cap_drp"),
            ({"provider_options": {"volumes": ["relative"]}}, "volume"),
        ],
    )
    async def test_a_failed_create_says_why_and_leaves_nothing(
        self, provider: Provider, owner: Ownership, spec: dict[str, object], said: str
    ) -> None:
        with pytest.raises(SandboxError, match=said):
            await OwnedSandbox.start(provider, SandboxSpec.model_validate({"image": IMAGE, **spec}), owner)
        assert await provider.find(run_id=owner.run_id) == []

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


async def test_an_engine_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    nobody = provider_from_block("sandbox", {"docker": {"host": f"unix://{tmp_path}/docker.sock"}})
    with pytest.raises(SandboxError) as failed:
        await OwnedSandbox.start(nobody, SandboxSpec(image=IMAGE), Ownership("r", "i"))
    assert failed.value.kind == "provider_unavailable"
    assert "no Docker engine answers at unix://" in str(failed.value)
    assert "\n" not in str(failed.value)
    await nobody.aclose()
