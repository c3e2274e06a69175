"""Which values are secrets, and a copy of a configuration without them.

Owns the rule, by the last words of a key's name, with the exceptions that only look like one
(`max_output_tokens`, `eos_token`, `answer_key`, token ids). A secret is masked also where it turns
up inside another value, because `${…}` put it there.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gym.config.errors import shown

MASK = "****"
PLACEHOLDERS = frozenset({"", "empty", "dummy", "x", "xxx", "none", "null", "placeholder", "changeme", "not-needed", "unused", "-", "???"})
"""Lower-case values that servers without authentication are given; they are no secrets."""

_SECRET = re.compile(r"(?:^|[_-])(?:api_?key|access_key|secret_key|private_key|token|password|passwd|secret|credentials?|authorization)$")
_NOT_SECRET = re.compile(r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|stop|think|special|start|end)_token$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHORTEST = 6  # a shorter secret is masked where it is set, but not searched for inside other texts


def is_secret_key(key: str) -> bool:
    """Whether a key of this name holds a secret."""
    name = _CAMEL.sub("_", key).lower().replace("-", "_")
    return _SECRET.search(name) is not None and _NOT_SECRET.search(name) is None


def is_placeholder(value: str) -> bool:
    """Whether a value stands where a secret would, without being one."""
    return value.strip().lower() in PLACEHOLDERS


def shown_under(key: str, value: object) -> str:
    """A value as it may stand in a message about that key."""
    return MASK if is_secret_key(key) and not (isinstance(value, str) and is_placeholder(value)) else shown(value)


def masked(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain data in which every secret is replaced by `****`; nulls, empty and placeholder values are kept."""
    secrets = sorted({secret for secret in _secrets(resolved) if len(secret) >= _SHORTEST}, key=len, reverse=True)
    return {key: _masked(key, value, secrets) for key, value in resolved.items()}


def _masked(key: str, value: Any, secrets: list[str]) -> Any:
    if isinstance(value, Mapping):
        block: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {name: _masked(name, child, secrets) for name, child in block.items()}
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [_masked(key, child, secrets) for child in items]
    if not isinstance(value, str):
        return MASK if is_secret_key(key) and isinstance(value, int | float) and not isinstance(value, bool) else value
    if is_secret_key(key):
        return value if is_placeholder(value) else MASK
    for secret in secrets:
        value = value.replace(secret, MASK)
    return value


def _secrets(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        block: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        for name, child in block.items():
            yield from _secrets(child, name)
    elif isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        for child in items:
            yield from _secrets(child, key)
    elif isinstance(value, str) and is_secret_key(key) and not is_placeholder(value):
        yield value
