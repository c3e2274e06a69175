"""From a provider block of the configuration to a provider.

A block is `<name>: {<provider>: {options}, default_metadata: {...}}`. Invariant: checking a block
loads no provider, so that a configuration can be linted in the time that it takes to read it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gym.config.errors import Problem, did_you_mean, shown
from gym.config.plan import Origin
from gym.config.schema import Section
from gym.config.tree import Block, KeyPath, from_plain, is_null, plain
from gym.config.validate import validate
from gym.sandbox.provider import Provider
from gym.sandbox.providers import docker_options, local_options

OPTIONS: dict[str, type[Section]] = {docker_options.NAME: docker_options.DockerOptions, local_options.NAME: local_options.LocalOptions}
"""Provider type -> its option model."""

_METADATA = "default_metadata"


class ProviderBlockError(ValueError):
    """A provider block is wrong. `key` is the dotted path of the culprit, as it stands in the configuration."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@dataclass(frozen=True)
class ProviderBlock:
    """A checked provider block."""

    name: str
    provider: str
    options: Section
    default_metadata: Mapping[str, str]


def read_block(name: str, block: Mapping[str, Any]) -> ProviderBlock:
    """Check the block called `name`; ProviderBlockError says what is wrong with which key."""
    checked, problems = check_block(name, cast("Block", from_plain(block, Origin(name))))
    if checked is None:
        first = problems[0]
        raise ProviderBlockError(first.key_path, f"{first.message} — {first.hint}" if first.hint else first.message)
    return checked


def check_block(name: str, block: Block, unresolved: Collection[KeyPath] = ()) -> tuple[ProviderBlock | None, list[Problem]]:
    """The block as its model, or None and everything that is wrong with it; `unresolved` are paths that were reported already."""
    metadata = block.entries.get(_METADATA)
    providers = [key for key in block.entries if key != _METADATA]
    if len(providers) != 1:
        message = f"a sandbox provider block takes one provider (found: {', '.join(providers) or 'none'})"
        return None, [Problem("two-providers", name, message, f"name one of: {_known()}", block.origin)]
    provider = providers[0]
    body = block.entries[provider]
    if provider not in OPTIONS:
        hint = did_you_mean(provider, OPTIONS, otherwise=f"name one of: {_known()}")
        return None, [Problem("unknown-provider", f"{name}.{provider}", "is not a sandbox provider", hint, body.origin)]
    problems: list[Problem] = []
    labels = cast("object", {} if metadata is None else plain(metadata) or {})
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in cast("dict[str, Any]", labels).values()):
        where = metadata.origin if metadata is not None else block.origin
        problems.append(Problem("wrong-value", f"{name}.{_METADATA}", "does not map names to text", "write {name: text}", where))
    if is_null(body):
        body = Block({}, body.origin)
    if not isinstance(body, Block):
        message = f"should be a mapping of options ({shown(plain(body))})"
        return None, [*problems, Problem("wrong-value", f"{name}.{provider}", message, f"write {provider}: {{…}}", body.origin)]
    options, found = validate(OPTIONS[provider], (name, provider), body, unresolved)
    problems += found
    if options is None or problems:
        return None, problems
    return ProviderBlock(name, provider, options, cast("dict[str, str]", labels)), []


def provider_from_block(name: str, block: Mapping[str, Any]) -> Provider:
    """The provider that the block called `name` describes. Nothing is contacted yet."""
    checked = read_block(name, block)
    if isinstance(checked.options, local_options.LocalOptions):
        from gym.sandbox.providers.local.provider import LocalProvider

        return LocalProvider(checked.options, checked.default_metadata)
    options = cast("docker_options.DockerOptions", checked.options)
    if options.hosts:
        from gym.sandbox.providers.docker.fleet import DockerFleet

        return DockerFleet(options, checked.default_metadata)
    from gym.sandbox.providers.docker.provider import DockerProvider  # here, so that `read_block` stays light

    return DockerProvider(options, checked.default_metadata)


def _known() -> str:
    return ", ".join(sorted(OPTIONS))
