"""The rules that the code can report, read from its source: the first argument of every call that makes a problem."""

import ast
from pathlib import Path

from gym.config.roots import INSTALL_ROOT

FOLDERS = ("gym/config", "gym/sandbox", "gym/manifests", "gym/cli")
_MAKERS = {"Problem", "_Failed", "report", "_report", "_problem"}


def emitted_rules() -> set[str]:
    """Every rule that some line of the code names."""
    return {rule for folder in FOLDERS for path in (INSTALL_ROOT / folder).rglob("*.py") for rule in _rules_of(path)}


def _rules_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        first = node.args[0]
        if name in _MAKERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            found.add(first.value)
    return found
