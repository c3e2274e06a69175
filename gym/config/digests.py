"""Digests of a configuration, key by key: enough to say which keys of two differ, and not what stands there.

Secrets are left out, so that a new key of the same endpoint is no other configuration.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gym.config.masking import masked
from gym.config.plan import Plan


def key_digests(plan: Plan) -> dict[str, str]:
    """A digest for each key of each instance's block, by its dotted path."""
    digests: dict[str, str] = {}
    for name, instance in plan.instances.items():
        shown = cast("object", masked({name: {instance.kind: {instance.implementation: instance.raw}}}))
        digests.update((path, _digest(value)) for path, value in _leaves("", shown))
    return digests


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The keys that differ, or that only one of the two has."""
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def digest_of(digests: Mapping[str, str]) -> str:
    """One digest for all of them."""
    return _digest(dict(digests))


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[Any, object]", value).items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
