"""What `pytest -rA` and `pytest -v` print about tests, for data sets that bring no parser of their own."""

import re
from collections.abc import Collection

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STATUS = r"(?P<status>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_SUMMARY = re.compile(rf"^{_STATUS} (?P<test>.+)$")
_VERBOSE = re.compile(rf"^(?P<test>\S.*?::.*\S) {_STATUS}(?: +\[ *\d+%\])?$")
_REASON = re.compile(r" - .*$")


def plain(output: str) -> str:
    """The output without colours."""
    return _ANSI.sub("", output)


def status_lines(output: str) -> list[tuple[str, str]]:
    """(status, the rest of the line) of every line that gives a test's status, in order; the rest may end with a reason."""
    found: list[tuple[str, str]] = []
    for line in plain(output).splitlines():
        match = _SUMMARY.match(line) or _VERBOSE.match(line)
        if match is not None:
            found.append((match["status"], match["test"]))
    return found


def pytest_statuses(output: str, known: Collection[str] = ()) -> dict[str, str]:
    """Test -> status; later lines win, as pytest's summary comes last.

    A line may end with a reason (` - …`), and ids may hold blanks and dashes: the longest of the
    `known` ids that the line begins with is taken, and else what stands before the first ` - `.
    """
    names = frozenset(known)
    return {_test_of(rest, names): status for status, rest in status_lines(output)}


def _test_of(rest: str, names: frozenset[str]) -> str:
    end = len(rest)
    while end > 0:
        if rest[:end] in names:
            return rest[:end]
        end = rest.rfind(" ", 0, end)
    return _REASON.sub("", rest)
