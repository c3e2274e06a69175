"""What is reported to a user: one `Problem` a line, and the exceptions that end a command.

Owns the rendering of problems. Its invariant: everything a user did wrong ends as a `UserError`,
of which a command prints the text and no traceback. It knows no rule; those live with the checks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gym.config.plan import Origin


class UserError(Exception):
    """Something that the user can put right; `str()` of it is the whole message."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where it was written, and what to do about it."""

    rule: str
    key_path: str
    message: str
    hint: str = ""
    origin: "Origin | None" = None
    severity: Literal["error", "warning"] = "error"
    meant: str = field(default="", compare=False)
    """Of a key that is misspelt: the dotted path of the one that was meant."""
    lacks: str = field(default="", compare=False)
    """Of a value that is missed: its dotted path."""

    def __str__(self) -> str:
        where = f"{self.origin}: " if self.origin is not None else ""
        key = f"{self.key_path}: " if self.key_path else ""
        hint = f" — {self.hint}" if self.hint else ""
        return printable(f"{where}{self.severity}[{self.rule}]: {key}{self.message}{hint}")

    def as_dict(self) -> dict[str, Any]:
        """The problem as plain data, for `--format json`; `file`, `line` and `column` are null where nothing was written."""
        origin = self.origin
        return {
            "severity": self.severity,
            "rule": self.rule,
            "key": self.key_path,
            "message": self.message,
            "hint": self.hint,
            "file": origin.path if origin is not None else None,
            "line": origin.line or None if origin is not None else None,
            "column": origin.column or None if origin is not None else None,
        }


class ConfigErrors(UserError):
    """A configuration that cannot be used: all of its problems, errors and warnings alike."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that stop a run."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def without_follow_ups(problems: Sequence[Problem]) -> list[Problem]:
    """The problems, but not that a value is missed which was given under a misspelt key: that key is reported."""
    meant = {problem.meant for problem in problems if problem.meant}
    return [problem for problem in problems if not problem.lacks or problem.lacks not in meant]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Without repetition, by file and position; what stands nowhere comes first."""

    def place(problem: Problem) -> tuple[str, int, int]:
        origin = problem.origin
        return ("", 0, 0) if origin is None else (origin.path, origin.line, origin.column)

    return sorted(dict.fromkeys(problems), key=place)


def printable(line: str) -> str:
    """`line` with control characters spelt out: names and values in it are the user's, and a terminal would obey them."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in line)


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """A hint that names the closest candidate, else lists a few of them, else `otherwise`."""
    known = sorted(set(candidates))
    close = closest(name, known)
    if close is not None:
        return f"did you mean '{close}'?"
    if otherwise or not known:
        return otherwise
    return f"one of: {listed(known)}"


def closest(name: str, candidates: Iterable[str], cutoff: float | None = None) -> str | None:
    """The candidate most like `name`, or None if none is much like it (one letter in a short name, a quarter of a long one)."""
    if cutoff is None:
        cutoff = 0.6 if len(name) <= 6 else 0.75
    found = get_close_matches(name, list(candidates), n=1, cutoff=cutoff)
    return found[0] if found else None


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Names separated by commas, at most `limit` of them."""
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def shown(value: object, limit: int = 80) -> str:
    """A value as it may stand in a message: on one line and bounded."""
    text = " ".join(repr(value).split()) if isinstance(value, str) else " ".join(str(value).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
