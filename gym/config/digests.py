"""Digests of a configuration, key by key: enough to say which keys of two differ, and not what stands there.

Left out is what cannot change a result: secrets, where servers and engines are to be found, and how
much runs at a time. A run may go on at another endpoint, under another key, at another pace.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gym.config.masking import is_secret_key, masked
from gym.config.plan import Plan

_WHERE = {"base_url", "cert_path", "headers", "host", "hosts", "port", "reach_host", "reach_listen", "url"}
_PACE = {"burst", "concurrency", "max_concurrency", "max_concurrent_episodes", "max_queued_episodes", "rate_per_second"}
_WORDS = {"description"}


def key_digests(plan: Plan) -> dict[str, str]:
    """A digest for each key of each instance's and each sandbox provider's block, by its dotted path."""
    blocks: dict[str, object] = {name: {one.kind: {one.implementation: one.raw}} for name, one in plan.instances.items()}
    return {path: _digest(value) for path, value in _leaves("", masked({**blocks, **plan.sandbox_providers}))}


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The keys that differ, or that only one of the two has."""
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def digest_of(digests: Mapping[str, str]) -> str:
    """One digest for all of them."""
    return _digest(dict(digests))


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for key, inner in cast("dict[Any, object]", value).items():
        if not path or not (key in _WHERE or key in _PACE or key in _WORDS or is_secret_key(str(key))):
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
