"""Every profile on real code: the gold patch of three real tasks resolves, and a harmless patch does not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

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
async def test_gold_resolves_and_a_harmless_patch_does_not(make_rig: Any, dress: Callable[..., Any], profile: str, task: str) -> None:
    rig = await make_rig(kind=PROFILES[profile][0], row=dress(profile, task))
    wrong = await rig.verify(model_patch=REMARK)
    shown = {name: wrong.get(name) for name in ("failure_reason", "test_output", "test_results")}
    assert (wrong["mask_sample"], wrong["reward"], wrong["evaluation_completed"], wrong["patch_applied"]) == (False, 0.0, True, True), shown
    assert wrong["failed_required_tests"]
    await rig.seed()
    await rig.solve()
    gold = await rig.verify()
    shown = {name: gold.get(name) for name in ("failure_reason", "failed_required_tests", "test_output")}
    assert (gold["mask_sample"], gold["reward"], gold["failed_required_tests"]) == (False, 1.0, []), shown
    await rig.close()
