"""What people get wrong, and what `gym env validate` says of it: the cases of tests/broken_configs.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gym.cli import main as cli
from gym.config.rules import RULES
from tests.broken_configs import BrokenConfig, read_cases
from tests.lint_rules import emitted_rules

CASES = read_cases()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_EXTRA_ROOTS", raising=False)


def validate(case: BrokenConfig, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = cli.run(["env", "validate", *case.place(folder), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_mistake_is_told_where_it_was_made_once_and_with_what_to_do(
    case: BrokenConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = validate(case, tmp_path, capsys)
    lines = err.splitlines()
    if code:
        assert (lines.pop().split(", ")[0].split()[1].rstrip("s"), out) == ("error", "")
    else:
        assert out.endswith(" valid\n")
    assert code == (1 if case.stops else 0)
    assert len(lines) == len(case.says), err
    for line, says, pattern in zip(lines, case.says, case.expected(), strict=True):
        assert pattern.fullmatch(line), f"{line}\n{says}"
        assert line.partition(" — ")[2], f"it does not say what to do: {line}"


@pytest.mark.parametrize("case", [case for case in CASES if not case.stops], ids=lambda case: case.name)
def test_a_doubt_stops_only_who_is_strict(case: BrokenConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(case, tmp_path, capsys, "--strict")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == f"0 errors, {len(case.says)} warning{'s' * (len(case.says) != 1)}"


@pytest.mark.parametrize("case", CASES[::20], ids=lambda case: case.name)
def test_the_program_says_the_same(case: BrokenConfig, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gym.cli.main import main; main()", "env", "validate", *case.place(tmp_path), "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (int(case.stops), "")
    assert [problem["rule"] for problem in json.loads(done.stdout)["problems"]] == list(case.rules)


def test_every_rule_has_one_and_no_other_is_reported() -> None:
    assert emitted_rules() - {"row"} == set(RULES)  # rows are looked at by gym env test
    assert {rule for case in CASES for rule in case.rules} == set(RULES)
    assert len({case.mistake for case in CASES}) == len(CASES)


def test_every_rule_says_what_it_finds_and_what_to_do() -> None:
    assert list(RULES) == sorted(RULES)
    for rule in RULES.values():
        assert rule.finds.endswith(".")
        assert rule.fix.endswith(".")
