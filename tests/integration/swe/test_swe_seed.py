"""What an agent is given: a task sandbox without a future, and no more than the configuration grants."""

import asyncio
import contextlib
from typing import Any

import pytest

from gym.client import CallError
from gym.protocol import routes

pytestmark = pytest.mark.docker

BLOCK: dict[str, Any] = {"docker": {"create": {"network": "none", "pull": "never"}}}
OBJECTS = "git cat-file --batch-all-objects --batch-check='%(objecttype) %(objectname)'"


async def test_the_future_is_gone(rig: Any) -> None:
    await rig.seed()
    work, base = rig.work, rig.row["base_commit"]
    assert (await work("git rev-parse HEAD")).strip() == base
    assert (await work("git for-each-ref --format='%(refname)'")).split() == ["refs/heads/gym-task"]
    assert await work("git remote; git tag; git stash list; git notes list 2>/dev/null; git reflog") == ""
    objects = (await work(OBJECTS)).splitlines()
    commits = {line.split()[1] for line in objects if line.startswith("commit")}
    assert commits == set((await work("git rev-list HEAD")).split())
    assert not [line for line in objects if line.startswith("tag")]
    reachable = {line.split()[0] for line in (await work("git rev-list --objects HEAD")).splitlines()}
    assert {line.split()[1] for line in objects} == reachable, "no blob of a later commit either"
    everything = await work("git cat-file --batch-all-objects --batch; grep -ra . .git")
    for trace in ("test_left_to_right", "Apply operators from left", "release 1.1", "git.example.com", "fix/left-to-right"):
        assert trace not in everything
    assert (await work("git status --porcelain")).splitlines() == ["?? build-stamp.txt"]
    assert (await work("git commit -q --allow-empty -m mine && git log -1 --format='%an <%ae>'")).strip() == "Gym agent <agent@gym.invalid>"


async def test_no_row_data_stands_in_the_sandbox(rig: Any) -> None:
    await rig.seed()
    found = await rig.work("grep -rlE 'test_left_to_right|GYM_TEST_PATCH' / --exclude-dir=proc --exclude-dir=sys 2>/dev/null; env; true")
    assert found.count("\n") == (await rig.work("env")).count("\n"), found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"setup": ["exit 4"]}, "setup command 'exit 4' failed"),
        ({"setup": ["mkdir -p .git/objects/info; echo /elsewhere > .git/objects/info/alternates"]}, "failed"),
        ({"setup": ["ln -s /bin/false /usr/local/bin/comm"]}, "scrubbing the history"),
        ({"hide": ["tests/test_evaluate.py"]}, "tests/test_evaluate.py can still be read from the history"),
        ({"hide": ["/proc/self"]}, "hiding what the grader needs failed"),
        ({"workdir": "/nowhere"}, "reading the repository in /nowhere"),
        ({"setup": ["rm /usr/bin/git"]}, "the image has no git"),
        ({"eval_script": None}, "eval_script must be text"),
        ({"task_id": "another"}, "the task is 'another', but its row is 'gym-test__calc-1'"),
    ],
)
async def test_a_task_that_cannot_be_made_safe_is_refused(rig: Any, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallError) as raised:
        await rig.seed(**changes)
    assert raised.value.status == 422
    assert raised.value.terminal
    assert reason in raised.value.message
    assert await rig.roles() == []


async def test_what_the_grader_needs_is_hidden_from_the_agent_only(rig: Any) -> None:
    await rig.seed(setup=["mkdir hidden && echo secret > hidden/expected.json"], hide=["hidden", "build-stamp.txt", "not-there"])
    assert await rig.work("ls hidden build-stamp.txt 2>/dev/null | wc -l; git status --porcelain") == "0\n"
    await rig.solve()
    await rig.work("mkdir hidden && echo forged > hidden/expected.json")
    verdict = await rig.verify()
    assert (verdict["reward"], verdict["mask_sample"]) == (1.0, False)
    assert "hidden" not in verdict["model_patch"]


async def test_an_image_that_is_not_there_is_said(rig: Any) -> None:
    with pytest.raises(CallError) as raised:
        await rig.seed(image="gym-test/no-such-image:latest")
    assert "gym-test/no-such-image" in raised.value.message
    assert await rig.roles() == []


async def test_gold_is_shown_only_where_the_configuration_says_so(make_rig: Any) -> None:
    for exposed, status in (([], 403), (["oracle_agent"], 200)):
        rig = await make_rig(expose_gold_to=exposed)
        await rig.seed(session=f"s{status}")
        if status == 200:
            reply = await rig.client.post("/gold_patch", {}, timeout=20, cookies=rig.cookies)
            assert reply.json()["patch"] == rig.row["patch"]
        else:
            with pytest.raises(CallError) as raised:
                await rig.client.post("/gold_patch", {}, timeout=20, cookies=rig.cookies)
            assert raised.value.status == 403
        with pytest.raises(CallError) as raised:
            await rig.client.post("/gold_patch", {}, timeout=20)
        assert raised.value.status == 401


@pytest.mark.parametrize("after", [0.0, 0.15, 0.4, 0.9])
async def test_a_seed_closed_while_it_runs_leaves_nothing(rig: Any, after: float) -> None:
    seeding = asyncio.ensure_future(rig.client.post(routes.SEED_SESSION, rig.seed_body("s1"), timeout=60))
    await asyncio.sleep(after)
    await rig.close()
    assert await rig.roles() == []
    with contextlib.suppress(CallError):
        await seeding
    with pytest.raises(CallError) as raised:
        await rig.seed()
    assert raised.value.status == 409, "a seed that comes late creates nothing"
    assert await rig.roles() == []


async def test_a_server_that_starts_removes_only_what_its_predecessor_left(make_rig: Any) -> None:
    rig, neighbour = await make_rig(), await make_rig(instance="neighbour")
    await rig.seed()
    await neighbour.seed()
    assert await rig.roles() == ["task", "task"]
    await make_rig()  # the same instance, as after a crash
    assert await rig.roles() == ["task"]
    assert await neighbour.work("echo alive") == "alive\n"
    await rig.close()
    await neighbour.close()


async def test_an_image_without_bash_is_refused(make_rig: Any) -> None:
    rig = await make_rig(block={"docker": {**BLOCK["docker"], "exec": {"exec_shell": "/bin/sh"}}})
    with pytest.raises(CallError) as raised:
        await rig.seed()
    assert raised.value.status == 422
    assert "not run by bash" in raised.value.message


async def test_a_repository_that_our_user_cannot_write_is_refused(make_rig: Any) -> None:
    rig = await make_rig(sandbox_config={"ttl_s": 300, "user": "nobody"})
    with pytest.raises(CallError) as raised:
        await rig.seed()
    assert raised.value.status == 422
    assert "scrubbing the history" in raised.value.message
    assert await rig.roles() == []


async def test_an_unscrubbed_task_keeps_its_history(make_rig: Any) -> None:
    rig = await make_rig(apply_anti_cheating=False)
    await rig.seed()
    assert "v1.1" in await rig.work("git tag")
    await rig.solve()
    assert (await rig.verify())["reward"] == 1.0
