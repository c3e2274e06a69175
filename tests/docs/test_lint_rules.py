"""docs/lint-rules.md is made of the rules and of the broken configs: with GYM_WRITE_DOCS=1 it is written, without it is compared."""

import os
from pathlib import Path

import pytest

from gym.cli import main as cli
from gym.config.roots import INSTALL_ROOT
from gym.config.rules import RULES
from tests.broken_configs import BrokenConfig, read_cases

PAGE = INSTALL_ROOT / "docs/lint-rules.md"
HEAD = """# What `gym env validate` finds

Made by tests/docs/test_lint_rules.py from the rules and from configs that are broken on purpose; do not edit by hand.

Each problem is one line: `file:line:column: severity[rule]: key: what is wrong (value) — what to do`.
Errors stop a run. Warnings do not, and with `--strict` they fail the check.
How configurations are written is told in [configuration.md](configuration.md), and manifests in [manifests.md](manifests.md).

"""


def _lines(case: BrokenConfig, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the command says of a case, with paths as they are in a checkout."""
    folder.mkdir()
    os.chdir(folder)
    cli.run(["env", "validate", *case.place(folder)])
    said = capsys.readouterr().err.replace(f"{folder}/", "").replace(f"{INSTALL_ROOT}/", "")
    return said.replace(case.file, "config.yaml" if "/" not in case.file else case.file).splitlines()


def _section(rule: str, cases: list[BrokenConfig], lines: dict[str, list[str]]) -> str:
    severities = sorted(
        {severity for case in cases for line in lines[case.name] for severity in ("error", "warning") if f"{severity}[{rule}]" in line}
    )
    example = next(line for line in lines[cases[0].name] if f"[{rule}]: " in line)
    mistakes = "\n".join(f"- {case.mistake}" for case in cases)
    told = RULES[rule]
    return f"## {rule}\n\n{' or '.join(severities).capitalize()}. {told.finds} {told.fix}\n\n```text\n{example}\n```\n\n{mistakes}\n"


def test_the_page_is_that_of_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYM_EXTRA_ROOTS", raising=False)
    cases = read_cases()
    lines = {case.name: _lines(case, tmp_path / case.name, capsys) for case in cases}
    # a case with one problem is the plainest example
    by_rule = {rule: sorted((case for case in cases if rule in case.rules), key=lambda case: len(case.says)) for rule in RULES}
    page = HEAD + "\n".join(_section(rule, found, lines) for rule, found in by_rule.items())
    if os.environ.get("GYM_WRITE_DOCS") == "1":
        PAGE.write_text(page)
    assert PAGE.read_text() == page
