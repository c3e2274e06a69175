"""Our verdict on saved logs against the report of the `swebench` package, which is made separately, by its own functions.

The logs are of real runs of pylint-4551, moto-7365 and the example tasks `calc` and `ring` (without the listing of the
sources before the tests); what no run gives was written by hand: `patch_failed`, and the end of `timed_out`. Rows name
repositories whose parsers the package has.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LOGS = Path(__file__).resolve().parent / "logs"
ROWS: dict[str, dict[str, Any]] = json.loads((LOGS / "rows.json").read_text())

SCORED: dict[str, bool] = {
    "pylint_gold": True,  # ids are cut at the first blank, and twice the same is once
    "pylint_nothing": False,
    "moto_gold": True,  # in colours
    "moto_nothing": False,
    "calc_gold": True,
    "calc_nothing": False,
    "calc_syntax_error": False,
    "calc_all_skipped": False,
    "ring_gold": True,
}
"""Logs on which both sides judge: resolved or not."""

MASKED = {
    "calc_no_markers": "the tests did not start",
    "calc_patch_failed": "the tests did not start",  # our server has judged before: a patch that does not apply is a zero
    "calc_test_patch_failed": "the test patch did not apply",
    "calc_truncated": "without their end marker",
    "calc_timed_out": "without their end marker",
    "calc_zero_tests": "no test result could be read",
    "ring_broken_build": "no test result could be read",
}
"""Logs that show nothing about the model's patch: unresolved for the package, and masked with a reason by us."""

Ask = Callable[..., Any]


def both(ask: Ask, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    row = ROWS[path.name.split("_")[0]]
    return ask("theirs", row=row, path=str(path)), ask("ours", row=row, path=str(path))


def test_every_log_is_tested() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {*SCORED, *MASKED, "calc_not_utf8"}


@pytest.mark.parametrize("name", SCORED)
def test_verdict_and_statuses_are_the_same(ask: Ask, name: str) -> None:
    theirs, ours = both(ask, LOGS / f"{name}.log")
    assert theirs["resolved"] is ours["resolved"] is SCORED[name]
    assert ours["scored"]
    assert theirs["statuses"] == ours["statuses"]
    assert theirs["statuses"]


@pytest.mark.parametrize("name", MASKED)
def test_what_shows_nothing_is_unresolved_there_and_masked_here(ask: Ask, name: str) -> None:
    theirs, ours = both(ask, LOGS / f"{name}.log")
    assert theirs["resolved"] is ours["resolved"] is False
    assert not ours["scored"]
    assert MASKED[name] in ours["problem"]


def test_a_log_that_is_not_utf8(ask: Ask, tmp_path: Path) -> None:
    """The package cannot read it at all; on the same log with the bytes replaced, as we read it, both agree."""
    source = LOGS / "calc_not_utf8.log"
    theirs, ours = both(ask, source)
    assert theirs == {"readable": False}
    replaced = tmp_path / "calc_replaced.log"
    replaced.write_text(source.read_bytes().decode(errors="replace"))
    theirs, again = both(ask, replaced)
    assert theirs["resolved"] is ours["resolved"] is again["resolved"] is True
    assert theirs["statuses"] == ours["statuses"] == again["statuses"]


def test_results_outside_of_the_markers_are_nothing_to_us(ask: Ask, tmp_path: Path) -> None:
    """The one place where the package says more: with nothing between the markers it reads the whole log, which code under test writes."""
    log = (LOGS / "calc_gold.log").read_text()
    start, end = ">>>>> Start Test Output\n", ">>>>> End Test Output\n"
    path = tmp_path / "calc_outside.log"
    path.write_text(log.replace(start, "").replace(end, "") + start + end)
    theirs, ours = both(ask, path)
    assert theirs["resolved"] is True
    assert (ours["resolved"], ours["scored"]) == (False, False)
