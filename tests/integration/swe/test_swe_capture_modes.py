"""What counts as the agent's work, whatever it did to the repository, in both capture modes."""

from typing import Any

import pytest

pytestmark = pytest.mark.docker

COMMIT = "git add -A && git commit -qm work"


def expect(verdict: dict[str, Any], **fields: Any) -> None:
    shown = {name: verdict.get(name) for name in (*fields, "failure_reason", "patch_capture_error", "model_patch")}
    assert {name: verdict.get(name) for name in fields} == fields, shown


ZERO: dict[str, Any] = {"reward": 0.0, "mask_sample": False, "evaluation_completed": True, "patch_source": "none"}

WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "leaves a dirty tree": (
        "git apply -",
        {"reward": 1.0, "patch_source": "worktree"},
        ZERO | {"worktree_dirty": True, "patch_commits": 0},
    ),
    "commits": (
        f"git apply - && {COMMIT}",
        {"reward": 1.0, "patch_source": "worktree"},
        {"reward": 1.0, "patch_source": "committed", "patch_commits": 1, "patch_branch": "gym-task", "worktree_dirty": False},
    ),
    "commits elsewhere and comes back": (
        f"git checkout -q -b side && git apply - && {COMMIT} && git checkout -q gym-task",
        ZERO,
        {"reward": 1.0, "patch_source": "committed", "patch_commits": 1, "patch_branch": "side", "worktree_dirty": False},
    ),
    "stays on another branch": (
        f"git checkout -q -b side && echo more > more.txt && {COMMIT} && git apply - && {COMMIT}",
        {"reward": 1.0, "patch_source": "worktree"},
        {"reward": 1.0, "patch_source": "committed", "patch_commits": 2, "patch_branch": "side"},
    ),
    "commits on a detached head": (
        f"git checkout -q --detach && git apply - && {COMMIT}",
        {"reward": 1.0, "patch_source": "worktree"},
        {"reward": 1.0, "patch_source": "committed", "patch_branch": "HEAD"},
    ),
    "starts a history of its own": (
        f"git checkout -q --orphan fresh && git apply - && {COMMIT}",
        {"reward": 1.0, "patch_source": "worktree"},
        ZERO | {"patch_branch": "gym-task"},  # the branch that descends from the base comes first
    ),
    "removes the repository": ("git apply - && rm -rf .git", ZERO, ZERO),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_judged(make_rig: Any, way: str) -> None:
    script, in_worktree, committed = WAYS[way]
    for mode, expected in (("worktree", in_worktree), ("committed", committed)):
        rig = await make_rig(instance=f"swe-{mode}", patch_capture_mode=mode)
        await rig.seed()
        await rig.work(script, stdin=rig.row["patch"].encode())
        expect(await rig.verify(), **expected)
        await rig.close()


async def test_a_conftest_is_the_tests_own(rig: Any) -> None:
    """It is left out, and the rest is judged; one that stands in the gold patch is part of the solution."""
    await rig.seed()
    await rig.solve()
    await rig.work("echo 'def pytest_collection_modifyitems(items): items.clear()' > conftest.py; cp conftest.py tests/")
    expect(await rig.verify(), reward=1.0, mask_sample=False, patch_files_left_out=["conftest.py", "tests/conftest.py"])
    await rig.close()
    added = "diff --git a/conftest.py b/conftest.py\nnew file mode 100644\n--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+# of the fix\n"
    await rig.seed("s2", patch=rig.row["patch"] + added)
    await rig.solve()
    verdict = await rig.verify()
    expect(verdict, reward=1.0, patch_files_left_out=None)
    assert "# of the fix" in verdict["model_patch"]


async def test_gold_can_be_judged_without_an_agent(make_rig: Any) -> None:
    rig = await make_rig(is_verifying_golden_patch=True)
    reply = await rig.client.post("/seed_session", rig.seed_body("s1"), timeout=60)
    assert "sandbox_access" not in reply.json()
    assert await rig.roles() == []
    rig.cookies = dict(reply.cookies)
    expect(await rig.verify(), reward=1.0, patch_source="golden", model_patch=rig.row["patch"])
    rig.cookies = {}
    expect(await rig.verify(), reward=1.0, patch_source="golden")


async def test_all_tries_together_have_a_bound(make_rig: Any) -> None:
    rig = await make_rig(evaluation_timeout=30, verification_total_timeout=1.0, inconclusive_verification_retries=5)
    before, _, after = rig.row["eval_script"].partition("python -m pytest")
    await rig.seed(eval_script=before + "sleep 60\n" + after.partition("\n")[2])
    await rig.solve()
    expect(await rig.verify(), mask_sample=True, eval_timed_out=True, verification_attempts=1)
