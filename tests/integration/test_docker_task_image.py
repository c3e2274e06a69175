"""The small test task is worth testing with: it grades as its row says, and hides what a scrub must find."""

import json
from collections.abc import AsyncIterator

import pytest

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.docker


@pytest.fixture
async def box(docker_run_id: str, calc_row: dict[str, str]) -> AsyncIterator[OwnedSandbox]:
    provider = provider_from_block("sandbox", {"docker": {"create": {"network": "none", "pull": "never"}}})
    spec = SandboxSpec(image=calc_row["image"], ttl_s=300)
    async with await OwnedSandbox.start(provider, spec, Ownership(docker_run_id, "tests")) as sandbox:
        yield sandbox
    await provider.aclose()


async def passed(box: OwnedSandbox, row: dict[str, str]) -> set[str]:
    await box.upload("/tmp/eval.sh", row["eval_script"].encode())
    log = (await box.exec("bash /tmp/eval.sh 2>&1")).stdout
    tests = log.partition(">>>>> Start Test Output")[2].partition(">>>>> End Test Output")[0]
    assert tests, log
    return {line.removeprefix("PASSED ") for line in tests.splitlines() if line.startswith("PASSED ")}


async def test_no_patch_fails_and_gold_resolves(box: OwnedSandbox, calc_row: dict[str, str]) -> None:
    must_turn, must_stay = set(json.loads(calc_row["FAIL_TO_PASS"])), set(json.loads(calc_row["PASS_TO_PASS"]))
    assert box.workdir == "/testbed"
    assert await passed(box, calc_row) == must_stay
    assert (await box.exec("git status --porcelain")).stdout == "?? build-stamp.txt\n", "the eval script restores the tests"
    assert (await box.exec("git apply -v -", stdin=calc_row["patch"].encode())).ok
    assert await passed(box, calc_row) == must_turn | must_stay


async def test_its_history_holds_the_future(box: OwnedSandbox, calc_row: dict[str, str]) -> None:
    assert (await box.exec("git rev-parse HEAD")).stdout.strip() == calc_row["base_commit"]
    assert (await box.exec("git status --porcelain")).stdout == "?? build-stamp.txt\n"
    refs = (await box.exec("git for-each-ref --format='%(refname)'; git remote; git reflog | wc -l")).stdout.split()
    assert {"refs/heads/fix/left-to-right", "refs/remotes/origin/main", "refs/tags/v1.1", "refs/notes/commits", "origin"} <= set(refs)
    assert int(refs[-1]) > 1
