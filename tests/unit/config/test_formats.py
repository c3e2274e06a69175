"""What other programs read: SARIF by its schema, and GitHub's annotations by a reader of their grammar."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gym.config import Problem
from gym.config.formats import to_github, to_sarif
from gym.config.plan import Origin

SCHEMA = json.loads((Path(__file__).parent / "sarif_schema" / "sarif-2.1.0-rtm.5.json").read_text())
SARIF = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40).filter(
    lambda path: path == path.strip() and not path.startswith("//")
)
problems = st.builds(
    Problem,
    rule=st.sampled_from(["unknown-key", "stale", "wrong-value"]),
    key_path=texts,
    message=texts.filter(bool),
    hint=texts,
    origin=st.none() | st.builds(Origin, paths, st.integers(0, 9), st.integers(0, 9)),
    severity=st.sampled_from(["error", "warning"]),
)
NASTY = Problem("wrong-value", "a.b", "100%, so: no\r\nnever ::error::", "50%25", Origin("my, configs/50%:a b\nc#1?.yaml", 3, 7))


def read_annotations(output: str) -> list[dict[str, Any]]:
    """The workflow commands in a step's output, as GitHub's page on workflow commands describes them.

    A command is a line `::name key=value,key=value::message`. In a value %25, %0D, %0A, %3A and %2C stand for the letters
    that would end it, in a message the first three of them.
    """
    found: list[dict[str, Any]] = []
    for line in re.split(r"\r\n|\r|\n", output):
        command = re.fullmatch(r"::(?P<name>[a-z]+)(?: (?P<properties>[^:]*))?::(?P<message>.*)", line, re.DOTALL)
        assert command, f"not a command: {line!r}"
        entry = {"name": command["name"], "message": _unescaped(command["message"], {"%0D": "\r", "%0A": "\n"})}
        for pair in command["properties"].split(","):
            key, _, value = pair.partition("=")
            assert key in ("file", "line", "endLine", "col", "endColumn", "title")
            assert key not in entry
            entry[key] = _unescaped(value, {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","})
        found.append(entry)
    return found


def _unescaped(text: str, escapes: dict[str, str]) -> str:
    for escape, letter in escapes.items():
        text = text.replace(escape, letter)
    return text.replace("%25", "%")


@example([NASTY])
@given(st.lists(problems, min_size=1, max_size=4))
def test_annotations_say_everything_in_its_place(found: list[Problem]) -> None:
    annotations = read_annotations(to_github(found))
    assert len(annotations) == len(found)
    for problem, annotation in zip(found, annotations, strict=True):
        assert (annotation["name"], annotation["title"]) == (problem.severity, problem.rule)
        for part in (problem.key_path, problem.message, problem.hint):
            assert part in annotation["message"]
        origin = problem.origin
        placed = origin is not None and origin.line > 0
        assert annotation.get("file") == (origin.path if placed else None)
        assert annotation.get("line") == (str(origin.line) if placed else None)


@example([NASTY])
@given(st.lists(problems, max_size=4))
def test_sarif_holds_its_schema(found: list[Problem]) -> None:
    log = json.loads(to_sarif(found, "1.2.3", "configs/all.yaml"))
    SARIF.validate(log)
    (run,) = log["runs"]
    assert len(run["results"]) == len(found)
    for problem, result in zip(found, run["results"], strict=True):
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == problem.rule
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        parts = urlsplit(uri)
        assert parts.scheme in ("", "file")
        placed = problem.origin is not None and problem.origin.line > 0
        assert unquote(parts.path) == (problem.origin.path if placed else "configs/all.yaml")
        assert location["physicalLocation"].get("region", {}).get("startLine") == (problem.origin.line if placed else None)


def test_the_schema_is_one_that_refuses() -> None:
    log = json.loads(to_sarif([NASTY], "1"))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    with pytest.raises(jsonschema.ValidationError):
        SARIF.validate(log)


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_by_the_command(gym, project, form: str) -> None:
    """Files and lines are those of the file that is wrong, whichever names it, and paths are as a repository has them."""
    project.write("sub, dir/50%: bad.yaml", "\n\nnonsense: '50%, a:b\n\n  c'\n")
    project.write("all.yaml", "config_paths: [base.yaml, 'sub, dir/50%: bad.yaml']\n")
    code, out, err = gym("env", "validate", "-c", "all.yaml", "--format", form, "+nobody=null")
    assert (code, err) == (1, "")
    if form == "github":
        error, warning = sorted(read_annotations(out.removesuffix("\n")), key=lambda entry: entry["name"])
        assert (error["file"], error["line"], error["col"]) == ("sub, dir/50%: bad.yaml", "3", "1")
        assert "50%, a:b" in error["message"]
        assert (warning["name"], "file" in warning) == ("warning", False)
        return
    log = json.loads(out)
    SARIF.validate(log)
    places = {result["level"]: result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]}
    assert places["error"]["artifactLocation"]["uri"] == "sub%2C%20dir/50%25%3A%20bad.yaml"
    assert places["error"]["region"] == {"startLine": 3, "startColumn": 1}
    assert places["warning"] == {"artifactLocation": {"uri": "all.yaml"}}


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_nothing_wrong_is_nothing_said(gym, form: str) -> None:
    code, out, _ = gym("env", "validate", "-c", "base.yaml", "--format", form)
    assert code == 0
    if form == "sarif":
        SARIF.validate(json.loads(out))
        assert json.loads(out)["runs"][0]["results"] == []
    else:
        assert out.strip() == ""
