"""`load`: from files and overrides to a `Plan`.

Owns the order of the stages and gathers what each of them finds: compose, directives, sort,
interpolate, type, refer, route, check. Starts nothing, imports no app, touches no network.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym.config.errors import ConfigErrors, Problem, in_order, without_follow_ups
from gym.config.plan import Origin, Plan
from gym.config.roots import find_implementation, search_roots, type_config
from gym.config.schema import KINDS, Kind, Settings

if TYPE_CHECKING:
    from gym.config.tree import Block, KeyPath


@dataclass(frozen=True)
class Loaded:
    """A plan that holds together, and what is doubtful about it."""

    plan: Plan
    warnings: list[Problem] = field(default_factory=list[Problem])


@dataclass(frozen=True)
class Examined:
    """What there is to know of a configuration that may be wrong."""

    resolved: Mapping[str, Any]
    """Plain data; a value that cannot be resolved is `???`. Secrets included."""
    origins: Mapping[str, Origin]
    history: Mapping[str, tuple[Origin, ...]]
    """Dotted key path -> where the values that it overrode were set, newest first."""
    problems: list[Problem]
    plan: Plan | None
    """None if any problem is an error."""
    sandbox_providers: Mapping[str, "Block"] = field(default_factory=dict[str, "Block"])
    """Provider blocks by name, not checked any further than that each names one provider."""
    files: Mapping[Path, Origin] = field(default_factory=dict[Path, Origin])
    """The files that were read, in the order in which they were laid, each with the place that named it."""
    unresolved: "Collection[KeyPath]" = ()
    """Paths that have no value because of a problem."""

    def origin_of(self, path: "KeyPath") -> Origin | None:
        """Where the value at a path was written, or its nearest ancestor."""
        from gym.config.tree import dotted

        return next((found for end in range(len(path), 0, -1) if (found := self.origins.get(dotted(path[:end])))), None)


def load(
    configs: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    model_type: str | None = None,
    agent_type: str | None = None,
    roots: Sequence[Path] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Loaded:
    """Composes and checks a configuration.

    `configs` are files, later ones over earlier ones; relative paths are looked for in `roots` (by
    default the working directory, `GYM_EXTRA_ROOTS`, the install root). `overrides` are in Hydra's
    grammar. `model_type` adds a shipped model server as `policy_model`, below everything else; `agent_type`
    puts a shipped harness in the place of every environment's agent.

    Raises `ConfigErrors` with every problem found, or `UserError` for an unknown `model_type` or `agent_type`.
    """
    examined = examine(configs, overrides, model_type=model_type, agent_type=agent_type, roots=roots, env=env, cwd=cwd)
    if examined.plan is None:
        raise ConfigErrors(examined.problems)
    return Loaded(examined.plan, examined.problems)


def examine(
    configs: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    model_type: str | None = None,
    agent_type: str | None = None,
    roots: Sequence[Path] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    with_env_file: bool = True,
) -> Examined:
    """As `load`, but problems are returned beside whatever could be composed. `with_env_file=False` leaves out local settings."""
    # YAML is imported with these: a server process that only needs the types does not pay for it
    from gym.config.agent_type import swap_agents
    from gym.config.blocks import sort_blocks
    from gym.config.checks import check_secrets
    from gym.config.compose import compose, display_path
    from gym.config.directives import resolve_directives
    from gym.config.implementations import implementation_fields
    from gym.config.interpolate import Interpolator, uses
    from gym.config.planning import make_plan
    from gym.config.tree import Block, Leaf, dotted, plain, walk

    environment = os.environ if env is None else env
    base = (cwd or Path.cwd()).absolute()
    places = list(roots) if roots is not None else search_roots(base, environment)
    files: list[Path | str] = list(configs)
    if model_type is not None:
        files.insert(0, type_config("responses_api_models", "--model-type", model_type, places))
    if agent_type is not None:
        files.insert(0, type_config("responses_api_agents", "--agent-type", agent_type, places))

    def fields_of(path: "KeyPath") -> Collection[str]:
        return implementation_fields(path, places)

    composition = compose(
        files, overrides, roots=places, cwd=base, known_keys=Settings.model_fields, with_env_file=with_env_file, fields_of=fields_of
    )
    if not composition.complete:
        return Examined({}, {}, {}, in_order(composition.problems), None)
    root = composition.root if model_type is None else _keep_model_type(composition.root, model_type)
    directed = resolve_directives(root)
    if agent_type is not None:
        swapped = swap_agents(directed.root, agent_type, directed.templates, places)
        directed = replace(directed, root=swapped.root, problems=[*directed.problems, *swapped.problems])
    used = set(directed.used)
    for _, node in walk(directed.root):
        if isinstance(node, Leaf) and isinstance(node.value, str) and "${" in node.value:
            used.update(uses(node.value))

    def kind_of(name: str) -> Kind | None:
        return next((kind for kind in KINDS if find_implementation(kind, name, places) is not None), None)

    blocks = sort_blocks(directed.root, templates=directed.templates, used=used, faulty=directed.faulty, kind_of=kind_of)
    interpolator = Interpolator(directed.root, environment)
    shown_files = [display_path(path, base) for path in composition.files]
    kept = {key: node for key, node in directed.root.entries.items() if key not in directed.templates}
    live = Block({key: node for key, node in kept.items() if not (isinstance(node, Leaf) and node.value is None)}, root.origin)
    problems = [*composition.problems, *directed.problems, *blocks.problems, *check_secrets(live, shown_files)]
    resolved = interpolator.resolve((), live)
    assert isinstance(resolved, Block)
    problems += interpolator.problems
    origins = {dotted(path): node.origin for path, node in walk(resolved) if path}
    history = {dotted(path): node.history for path, node in walk(resolved) if path and node.history}
    data: dict[str, Any] = plain(resolved)
    plan, found = make_plan(
        blocks,
        resolved,
        templates=directed.templates,
        broken=interpolator.broken,
        roots=places,
        cwd=base,
        layers=shown_files,
        origins=origins,
        data=data,
    )
    problems += found
    problems = in_order(without_follow_ups(problems))
    failed = any(problem.severity == "error" for problem in problems)
    providers = {name: block for name in blocks.providers if isinstance(block := resolved.entries.get(name), Block)}
    return Examined(data, origins, history, problems, None if failed else plan, providers, composition.files, interpolator.broken)


def _keep_model_type(root: Any, model_type: str) -> Any:
    """`--model-type` wins over another implementation that a file gives to `policy_model`."""
    from gym.config.tree import Block, assign, at

    path = ("policy_model", "responses_api_models")
    wanted = model_type.partition("/")[0]
    body = at(root, path)
    if not isinstance(body, Block) or wanted not in body.entries or len(body.entries) == 1:
        return root
    return assign(root, path, replace(body, entries={wanted: body.entries[wanted]}))
