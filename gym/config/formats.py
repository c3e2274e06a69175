"""Problems in the formats that other programs read.

Owns JSON (our own shape), SARIF 2.1.0 (code scanning, editors) and GitHub's workflow commands
(annotations on a pull request). Text is simply a line for each problem and needs nothing from here.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gym.config.errors import Problem
from gym.config.rules import RULES


def to_json(problems: Sequence[Problem], *, valid: bool) -> str:
    """`{"valid": …, "problems": [{severity, rule, key, message, hint, file, line, column}]}`."""
    return json.dumps({"valid": valid, "problems": [problem.as_dict() for problem in problems]}, indent=2, ensure_ascii=False)


def to_github(problems: Sequence[Problem]) -> str:
    """One workflow command a problem; empty if there is none."""
    return "\n".join(_annotation(problem) for problem in problems)


def _annotation(problem: Problem) -> str:
    place = {"title": problem.rule}
    origin = problem.origin
    if origin is not None and origin.line:
        place = {"file": origin.path, "line": str(origin.line), "col": str(origin.column), **place}
    properties = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in place.items())
    return f"::{problem.severity} {properties}::{_escaped(_text(problem))}"


def _escaped(text: str, more: str = "") -> str:
    """Text as GitHub wants it: percent signs, line ends and, in a property, its separators as %XX."""
    return "".join(f"%{ord(letter):02X}" if letter in "%\r\n" + more else letter for letter in text)


def to_sarif(problems: Sequence[Problem], version: str, subject: str | None = None) -> str:
    """A SARIF log with one run; `version` is ours. What stands in no file is told of the file `subject`: readers want a place."""
    rules = sorted({problem.rule for problem in problems})
    driver = {"name": "gym env validate", "version": version, "rules": [_described(rule) for rule in rules]}
    results = [_result(problem, rules.index(problem.rule), subject) for problem in problems]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _described(rule: str) -> dict[str, Any]:
    told = RULES[rule]
    return {"id": rule, "shortDescription": {"text": told.finds}, "help": {"text": told.fix}}


def _result(problem: Problem, rule: int, subject: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": problem.severity,
        "message": {"text": _text(problem)},
    }
    origin, place = problem.origin, dict[str, Any]()
    if origin is not None and origin.line:
        column = {"startColumn": origin.column} if origin.column else {}
        place = {"artifactLocation": {"uri": _uri(origin.path)}, "region": {"startLine": origin.line, **column}}
    elif subject is not None:
        place = {"artifactLocation": {"uri": _uri(subject)}}
    if place:
        result["locations"] = [{"physicalLocation": place}]
    return result


def _uri(path: str) -> str:
    """A path as a URI: a relative one stays so, and a colon in it does not make a scheme."""
    return ("file://" if path.startswith("/") else "") + quote(path)


def _text(problem: Problem) -> str:
    key = f"{problem.key_path}: " if problem.key_path else ""
    return key + problem.message + (f" — {problem.hint}" if problem.hint else "")
