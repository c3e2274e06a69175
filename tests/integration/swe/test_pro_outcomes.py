"""What is special about SWE-bench Pro's grading, on the small test task: two streams, and a parser in a sandbox of its own."""

from typing import Any

import pytest

from resources_servers.swebench_pro.app import SwebenchProServer
from tests.integration.swe import dressed

pytestmark = pytest.mark.docker

RUN = '. /opt/miniconda3/bin/activate; conda activate testbed; cd /testbed; python -m pytest -v -p no:cacheprovider "$@"; echo to stderr >&2\n'


@pytest.fixture
def pro_row(calc_row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: calc_row[name] for name in ("instance_id", "base_commit", "patch", "test_patch", "problem_statement", "image")}
    own = {"workdir": "/testbed", "run_script": RUN, "parser_script": dressed.PRO_PARSER}
    tests = {"fail_to_pass": calc_row["FAIL_TO_PASS"], "pass_to_pass": calc_row["PASS_TO_PASS"]}
    return {**kept, **own, **tests, "selected_test_files_to_run": ["tests/test_evaluate.py"]}


async def judged(make_rig: Any, row: dict[str, Any], patch: str | None = None) -> dict[str, Any]:
    rig = await make_rig(kind=SwebenchProServer, row=row, inconclusive_verification_retries=0)
    return await rig.verify(model_patch=row["patch"] if patch is None else patch)


async def test_gold_resolves_and_both_streams_are_shown(make_rig: Any, pro_row: dict[str, Any]) -> None:
    verdict = await judged(make_rig, pro_row)
    assert (verdict["reward"], verdict["mask_sample"], verdict["test_count"]) == (1.0, False, 15), verdict
    assert "to stderr" in verdict["test_output"]


async def test_a_patch_that_breaks_the_build_is_a_zero(make_rig: Any, pro_row: dict[str, Any]) -> None:
    broken = "diff --git a/calc/new.py b/calc/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/calc/new.py\n@@ -0,0 +1 @@\n+x\n"
    verdict = await judged(make_rig, pro_row | {"run_script": f"test -e /testbed/calc/new.py && echo no build || {{ {RUN} }}"}, broken)
    assert (verdict["reward"], verdict["mask_sample"], verdict["evaluation_completed"], verdict["test_count"]) == (0.0, False, True, 0), verdict


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parser_script": "raise SystemExit('no such log')"}, "the log parser failed: no such log"),
        ({"parser_script": "pass"}, "the log parser failed: "),
        ({"parser_script": "open(__import__('sys').argv[3], 'w').write('{}')"}, "the output could not be read: KeyError"),
        ({"test_patch": dressed.NO_FIT}, "the test patch did not apply: error: "),
    ],
)
async def test_no_verdict_is_masked(make_rig: Any, pro_row: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    verdict = await judged(make_rig, pro_row | changes)
    assert (verdict["mask_sample"], verdict["evaluation_completed"], verdict["failure_kind"]) == (True, False, "verifier_error"), verdict
    assert reason in verdict["failure_reason"]
