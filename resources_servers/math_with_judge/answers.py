"""Finding the answer in what the policy wrote, and writing it so that the library reads it as people do.

Works on text alone; whether two answers are equal is not decided here, except where they are the same text.
"""

import re
from collections.abc import Iterable

from gym.protocol.responses import Item, message_text

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:[ ,\u00a0\u202f'’]|\\[ ,;]|\{,\})\d{3})+(?!\d)")
_SEPARATOR = re.compile(r"[^\d]+")
_WORDS = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
_PERCENT = re.compile(r"\s*\\?%$")
_UNIT = re.compile(r"(?<=\d)\s*((?:[A-Za-z]{3,}|[kcm]m|[km]g|ml|ft|lb|mi|hr)(?:[ /][A-Za-z]+){0,3})\.?$")
_NUMERALS = frozenset(["hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "point"])
"""Words that change a number, and are no unit of it."""


def final_text(output: Iterable[Item]) -> str:
    """The last message of the assistant, without the thoughts of a model whose endpoint leaves them in the text."""
    texts = [text for item in output if item.get("type", "message") == "message" and (text := message_text(item))]
    if not texts:
        return ""
    before, closed, after = texts[-1].rpartition("</think>")
    if closed:
        return after
    return "" if before == "" and texts[-1].lstrip().startswith("<think>") else texts[-1]


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}` that has any; None if there is none, or it is never closed."""
    found = None
    for start in _BOX.finditer(text):
        content = _braced(text, start.end())
        if content is not None and content.strip():
            found = content.strip()
    return found


def _braced(text: str, start: int) -> str | None:
    depth, escaped = 1, False
    for place in range(start, len(text)):
        char = text[place]
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if not depth:
                return text[start:place]
    return None


def last_line(text: str) -> str | None:
    """The last line that says anything; where an answer stands that is in no box."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)


def tidy(answer: str) -> str:
    """An answer without its box, dollars and `\\text{}` around it, separators of thousands, percent sign, and unit in plain words."""
    text = answer.strip()
    text = last_boxed(text) or text
    if len(text) > 1 and text[0] == text[-1] == "$":
        text = text.strip("$").strip()
    words = _WORDS.fullmatch(text)
    text = words[1].strip() if words else text
    text = _GROUPED.sub(lambda match: _SEPARATOR.sub("", match[0]), text)
    text = _PERCENT.sub("", text)
    unit = _UNIT.search(text)
    if unit and not _NUMERALS & set(unit[1].lower().split()):
        text = text[: unit.start()]
    return text.strip()


def same_text(one: str, other: str) -> bool:
    """Whether two tidied answers are the same but for spaces."""
    return "".join(one.split()) == "".join(other.split())
