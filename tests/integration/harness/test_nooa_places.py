"""Where NOOA's runtime gets to in a real container, and which containers it is refused in."""

import asyncio
from collections.abc import Callable

import pytest

from gym.harness.bundle import Built
from gym.harness.placing import place
from gym.protocol.errors import ContractError
from tests.integration.harness.test_harness_run import Boxes, boxes

pytestmark = [pytest.mark.docker, pytest.mark.slow]

__all__ = ["boxes"]


@pytest.fixture
def runtime(bundles: Callable[[str], Built]) -> Built:
    return bundles("nooa_agent")


async def test_it_is_copied_once_under_a_lock_and_runs(boxes: Boxes, runtime: Built) -> None:
    box = await boxes.lend()
    first, second = await asyncio.gather(place(box, runtime, 60), place(box, runtime, 60))
    assert first == second == f"/opt/nemo-gym-nooa/{runtime.bundle.digest}"
    left = await box.exec("ls /opt/nemo-gym-nooa | grep -v lock; cat /opt/nemo-gym-nooa/*.lock | wc -c", cwd="/")
    assert left.stdout.split() == [runtime.bundle.digest, "0"], "no half copy is left"
    stub = "from responses_api_agents.nooa_agent.runner.litellm_stub import install; install()"
    parts = ("nooa_bench.bench_agent", *(f"responses_api_agents.nooa_agent.{name}" for name in ("runner.activation", "resource_agent")))
    code = f"{stub}; import {', '.join(parts)}; print(1)"
    ran = await box.exec(f"{first}/bin/python3 -I -c '{code}'", cwd="/")
    assert (ran.stdout, ran.return_code) == ("1\n", 0), ran.stderr


async def test_where_it_is_mounted_nothing_is_copied(boxes: Boxes, runtime: Built) -> None:
    volumes = [f"{runtime.folder.parent}:/opt/nemo-gym-nooa:ro"]
    box = await boxes.lend(provider_options={"volumes": volumes})
    assert await place(box, runtime, 60) == f"/opt/nemo-gym-nooa/{runtime.bundle.digest}"


async def refusal(boxes: Boxes, runtime: Built, prepare: str = "", **fields: object) -> str:
    box = await boxes.lend(**fields)
    if prepare:
        assert (await box.exec(prepare, cwd="/", user="0")).ok
    with pytest.raises(ContractError) as raised:
        await place(box, runtime, 60)
    assert (raised.value.status, raised.value.terminal) == (422, True)
    return str(raised.value)


async def test_what_it_cannot_run_in_is_refused_with_the_reason(boxes: Boxes, runtime: Built, busybox_image: str) -> None:
    said = await refusal(boxes, runtime, image=busybox_image, workdir="/root")
    assert said == "NOOA needs an image with glibc: this one has no /lib64/ld-linux-x86-64.so.2 (Alpine and busybox have none)"
    said = await refusal(boxes, runtime, "rm $(command -v flock)")
    assert said == "NOOA needs an image with bash, tar, gzip, sha256sum, flock, tee, mv: this one lacks flock"
    said = await refusal(boxes, runtime, "rm -rf /opt; ln -s /proc/sys /opt")
    assert said.startswith("NOOA needs /opt/nemo-gym-nooa in the sandbox: it is not mounted there, and it cannot be written (")
