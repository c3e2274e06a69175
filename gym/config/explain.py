"""Where a value comes from, in words.

Owns the lines that `gym env explain` prints: the value, where it was set, and what it overrode, the
newest first. Secrets are masked as everywhere.
"""

from typing import cast

from gym.config.errors import UserError, did_you_mean, shown
from gym.config.loading import Examined
from gym.config.masking import masked
from gym.config.tree import dotted, parse_path


def explain(examined: Examined, key: str) -> list[str]:
    """The lines for one key. Raises `UserError`, with a did-you-mean, if the configuration has no such key."""
    path = parse_path(key)
    value = cast(object, masked(examined.resolved))
    for index, part in enumerate(path):
        known: list[str] = []
        if isinstance(value, dict):
            block = cast("dict[str, object]", value)
            known = list(block)
            if str(part) in block:
                value = block[str(part)]
                continue
        if isinstance(value, list) and isinstance(part, int):
            items = cast("list[object]", value)
            if part < len(items):
                value = items[part]
                continue
        hint = did_you_mean(str(part), known, otherwise="see gym env resolve")
        raise UserError(f"{key}: there is no key '{part}' in {dotted(path[:index]) or 'the configuration'} — {hint}")
    name = dotted(path)
    lines = [f"{name}: {shown(value, limit=200)}"]
    origin = examined.origins.get(name)
    if origin is not None:
        lines.append(f"  set at {origin}")
    lines += [f"  over   {earlier}" for earlier in examined.history.get(name, ())]
    return lines
