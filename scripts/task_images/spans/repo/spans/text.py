"""Lengths of time in words, in whole seconds."""

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
SECONDS = dict(UNITS)


class SpanError(ValueError):
    """The text is no length of time."""


def describe(seconds):
    """`seconds` in words; the units that are zero are left out."""
    if seconds < 0:
        return "-" + describe(-seconds)
    parts = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


def total(text):
    """The seconds of a text as `describe` writes it."""
    sign, words = 1, text.split()
    if words and words[0].startswith("-"):
        sign, words[0] = -1, words[0][1:]
    if not words or len(words) % 2:
        raise SpanError(f"cannot read {text!r}")
    seconds = 0
    for count, unit in zip(words[::2], words[1::2], strict=True):
        if not count.isdigit() or unit not in SECONDS:
            raise SpanError(f"cannot read {count} {unit} in {text!r}")
        seconds += int(count) * SECONDS[unit]
    return sign * seconds
