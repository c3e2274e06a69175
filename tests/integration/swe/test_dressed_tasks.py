"""Every profile on real code: the gold patch of three real tasks resolves, and doing nothing, or a harmless patch, does not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gym.client import CallError
from resources_servers.r2e_gym.app import R2eGymServer
from resources_servers.scale_swe.app import ScaleSweServer
from resources_servers.swe_gym.app import SweGymServer
from resources_servers.swebench_pro.app import SwebenchProServer
from tests.integration.swe import dressed

pytestmark = [pytest.mark.docker, pytest.mark.slow]

REMARK = "diff --git a/remark.txt b/remark.txt\nnew file mode 100644\n--- /dev/null\n+++ b/remark.txt\n@@ -0,0 +1 @@\n+harmless\n"
PROFILES: dict[str, tuple[type, dressed.Dress, bool]] = {
    "scale_swe": (ScaleSweServer, dressed.as_scale_swe, False),
    "swe_gym": (SweGymServer, dressed.as_swe_gym, False),
    "r2e_gym": (R2eGymServer, dressed.as_r2e_gym, True),
    "swebench_pro": (SwebenchProServer, dressed.as_swebench_pro, True),
}
"""Server, how a row is dressed for it, and whether that takes an image of its own."""


@pytest.fixture(scope="module")
def dress(docker_engine: None) -> Iterator[Callable[[str, str], dict[str, Any]]]:
    """Rows by profile and task; derived images are made once, and removed at the end."""
    derived: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:

        def row_for(profile: str, task: str) -> dict[str, Any]:
            _, wear, needs_image = PROFILES[profile]
            row = dressed.published(task)
            if needs_image and task not in derived:
                derived[task] = stack.enter_context(dressed.derived_image(row))
            return wear(derived[task] if needs_image else row)

        yield row_for


@pytest.mark.parametrize("task", dressed.TASKS)
@pytest.mark.parametrize("profile", PROFILES)
async def test_gold_resolves_and_nothing_does_not(make_rig: Any, dress: Callable[..., Any], profile: str, task: str) -> None:
    rig = await make_rig(kind=PROFILES[profile][0], row=dress(profile, task))
    nothing = await rig.verify(model_patch="")
    assert (nothing["mask_sample"], nothing["reward"], nothing["evaluation_completed"]) == (False, 0.0, True)
    await rig.seed()
    await rig.solve()
    gold = await rig.verify()
    shown = {name: gold.get(name) for name in ("failure_reason", "failed_required_tests", "test_output")}
    assert (gold["mask_sample"], gold["reward"], gold["failed_required_tests"]) == (False, 1.0, []), shown
    await rig.close()


@pytest.mark.parametrize("task", [task for task in dressed.TASKS if task != "getmoto__moto-7365"])  # whose tests take the longest
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_harmless_patch_fails_required_tests(make_rig: Any, dress: Callable[..., Any], profile: str, task: str) -> None:
    rig = await make_rig(kind=PROFILES[profile][0], row=dress(profile, task))
    wrong = await rig.verify(model_patch=REMARK)
    shown = {name: wrong.get(name) for name in ("failure_reason", "test_output", "test_results")}
    assert (wrong["mask_sample"], wrong["reward"], wrong["evaluation_completed"], wrong["patch_applied"]) == (False, 0.0, True, True), shown
    assert wrong["failed_required_tests"]


SMALL = "tox-dev__pipdeptree-279"


async def test_hidden_tests_cannot_be_seen_nor_replaced(make_rig: Any, dress: Callable[..., Any]) -> None:
    rig = await make_rig(kind=R2eGymServer, row=dress("r2e_gym", SMALL))
    await rig.seed()
    seen = "find / -xdev '(' -name 'r2e_tests*' -o -name run_tests.sh -o -name expected_test_output.json ')' 2>/dev/null"
    assert await rig.work(seen) == ""
    assert (await rig.work("git log --all --format=%s")).splitlines() == ["Start from the state of the image", "source release"]
    forged = "= short test summary info =\\nPASSED r2e_tests/test_1.py::TestFilter::test_unknown\\n"
    await rig.work(f"mkdir r2e_tests && echo \"printf '{forged}'\" > run_tests.sh && cp run_tests.sh r2e_tests/")
    await rig.work("echo '# a remark' >> src/pipdeptree/__main__.py")
    verdict = await rig.verify()
    assert verdict["patch_files_left_out"] == ["r2e_tests/run_tests.sh", "run_tests.sh"]
    assert (verdict["reward"], verdict["mask_sample"], verdict["failed_required_tests"]) == (0.0, False, ["TestFilter.test_unknown"])
    await rig.close()


async def test_a_patch_that_removes_tests_is_judged_by_them(make_rig: Any, dress: Callable[..., Any]) -> None:
    """pytest would run nothing, and nothing would be known: the rollout would be masked, and tried again and again."""
    row = dress("scale_swe", SMALL)
    first, second = (f"diff --git {piece}" for piece in row["f2p_patch"].split("diff --git ")[1:])
    assert "tests/render/test_text.py" in second
    gone = "tests/render/test_text.py"
    rig = await make_rig(kind=ScaleSweServer, row=row | {"f2p_patch": first})
    await rig.seed(f2p_patch=first)
    await rig.work(f"rm -r {gone}")
    verdict = await rig.verify()
    assert verdict["model_patch"].startswith(f"diff --git a/{gone} b/{gone}\ndeleted file")
    assert (verdict["reward"], verdict["mask_sample"], verdict["evaluation_completed"]) == (0.0, False, True)
    assert all(gone not in test for test in verdict["failed_required_tests"]), "the tests of the removed file ran"
    await rig.close()


@pytest.mark.parametrize(("profile", "field"), [("scale_swe", "f2p_patch"), ("swe_gym", "test_patch")])
async def test_a_test_patch_that_does_not_fit_is_masked(make_rig: Any, dress: Callable[..., Any], profile: str, field: str) -> None:
    row = dress(profile, SMALL) | {field: dressed.NO_FIT}
    rig = await make_rig(kind=PROFILES[profile][0], row=row, inconclusive_verification_retries=0)
    verdict = await rig.verify(model_patch=REMARK)
    assert (verdict["mask_sample"], verdict["failure_kind"]) == (True, "verifier_error"), verdict
    assert "the test patch did not apply: error: " in verdict["failure_reason"]


async def test_a_row_without_a_gold_patch_says_so(make_rig: Any, dress: Callable[..., Any]) -> None:
    rig = await make_rig(kind=R2eGymServer, row=dress("r2e_gym", SMALL) | {"patch": None}, expose_gold_to=["oracle_agent"])
    await rig.seed()
    with pytest.raises(CallError, match="has no gold patch") as raised:
        await rig.client.post("/gold_patch", {}, timeout=20, cookies=rig.cookies)
    assert raised.value.terminal
    await rig.close()
