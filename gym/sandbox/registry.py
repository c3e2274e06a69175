"""From a provider block of the configuration to a provider.

A block is `<name>: {<provider>: {options}, default_metadata: {...}}`. Invariant: checking a block
loads no provider, so that a configuration can be linted in the time that it takes to read it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from gym.config.errors import Problem
from gym.config.plan import Plan
from gym.config.schema import Section
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
    providers = [key for key in block if key != _METADATA]
    if len(providers) != 1:
        found = ", ".join(providers) or "none"
        raise ProviderBlockError(name, f"a sandbox provider block names exactly one provider of {_known()} (found: {found})")
    provider = providers[0]
    if provider not in OPTIONS:
        raise ProviderBlockError(f"{name}.{provider}", f"unknown sandbox provider{_hint(provider, list(OPTIONS))} (known: {_known()})")
    metadata = cast("object", block.get(_METADATA) or {})
    if not isinstance(metadata, Mapping) or not all(isinstance(value, str) for value in cast("Mapping[str, Any]", metadata).values()):
        raise ProviderBlockError(f"{name}.{_METADATA}", "must map names to strings")
    try:
        options = OPTIONS[provider].model_validate(block[provider] or {})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([name, provider, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise ProviderBlockError(key, f"unknown key{_hint(str(first['loc'][-1]), _siblings(provider, first['loc']))}") from None
        said = first["msg"].removeprefix("Value error, ")
        raise ProviderBlockError(key, f"{said[:1].lower()}{said[1:]} (got {first['input']!r})") from None
    return ProviderBlock(name, provider, options, dict(cast("Mapping[str, str]", metadata)))


def check_blocks(plan: Plan) -> list[Problem]:
    """What is wrong with the provider blocks of a plan, the first of each."""
    problems: list[Problem] = []
    for name, block in plan.sandbox_providers.items():
        try:
            read_block(name, block)
        except ProviderBlockError as error:
            origin = plan.origins.get(error.key) or plan.origins.get(name)
            problems.append(Problem("sandbox-provider", error.key, error.problem, "see docs/sandbox.md", origin))
    return problems


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


def _hint(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(known))})" if known else ""


def _siblings(provider: str, location: tuple[int | str, ...]) -> list[str]:
    """The keys that are allowed where the last one of `location` stands."""
    model: type[Section] = OPTIONS[provider]
    for part in location[:-1]:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        inner = fields[str(part)].annotation if str(part) in fields else None
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]
