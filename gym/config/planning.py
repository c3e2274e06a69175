"""The last stage: sorted and resolved blocks -> a `Plan`, with every check that needs types.

Owns how the checks follow each other, so that one mistake is reported once: what an earlier stage
reported is not looked at by a later one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from gym.config import budgets, checks
from gym.config.blocks import Blocks, InstanceBlock
from gym.config.datasets import Declared, check_dataset, declared, locate_dataset, path_hint
from gym.config.errors import Problem, closest
from gym.config.implementations import find
from gym.config.plan import Instance, Origin, Plan
from gym.config.references import References, check_pairings, environment_routes, find_references, route_tasksets
from gym.config.roots import find_file
from gym.config.schema import AgentConfig, Auth, MustExist, ResourcesServerConfig, ServerConfig, Settings
from gym.config.tree import Block, KeyPath, Leaf, Node, at, dotted, origin_of, plain
from gym.config.validate import validate


def make_plan(
    blocks: Blocks,
    resolved: Block,
    *,
    templates: Mapping[str, str],
    broken: set[KeyPath],
    roots: Sequence[Path],
    cwd: Path,
    layers: Sequence[str],
    origins: Mapping[str, Origin],
    data: Mapping[str, Any],
) -> tuple[Plan | None, list[Problem]]:
    """The plan, or None where something is too wrong to go on, and every problem found."""
    problems: list[Problem] = []
    instances = [replace(instance, block=_resolved(instance, resolved)) for instance in blocks.instances]
    settings = _settings(blocks, resolved, broken, cwd, problems)
    references = find_references(instances, templates, blocks.faulty, blocks.removed)
    problems += references.problems
    made: dict[str, Instance] = {}
    datasets: list[Declared] = []
    complete = not blocks.faulty
    for instance in instances:
        built = _instance(instance, references, resolved, broken, roots, cwd, problems)
        if built is None:
            complete = False
            continue
        made[instance.name] = built
        datasets += declared(instance, built)
    for found in datasets:
        problems += check_dataset(found, roots, cwd)
    bodies = {instance.name: instance.block for instance in instances}
    problems += checks.check_sandbox_providers(
        bodies, {instance.name: instance.path for instance in instances}, {*blocks.providers, *blocks.faulty}
    )
    problems += checks.check_addresses(made, settings or Settings(), resolved)
    environments = environment_routes(made)
    problems += check_pairings(made, environments, references)
    problems += budgets.check_time_budgets(made, environments, resolved, layers)
    problems += checks.check_tool_transports(made, environments, resolved)
    routing = route_tasksets(_explicit_routes(resolved, settings), datasets, environments, made)
    if complete and not references.problems:  # routes follow from references: with one missing, what they say is noise
        problems += routing.problems
    if settings is None or not complete:
        return None, problems
    providers = {name: cast("dict[str, Any]", data[name]) for name in blocks.providers}
    plan = Plan(
        settings=settings,
        instances=made,
        routes=routing.routes,
        environments=environments,
        sandbox_providers=providers,
        datasets=tuple(found.binding for found in datasets),
        origins=origins,
        resolved=data,
    )
    return plan, problems


def _resolved(instance: InstanceBlock, resolved: Block) -> Block:
    node = at(resolved, instance.path)
    return node if isinstance(node, Block) else instance.block


def _settings(blocks: Blocks, resolved: Block, broken: set[KeyPath], cwd: Path, problems: list[Problem]) -> Settings | None:
    entries: dict[str, Node] = {key: resolved.entries.get(key, node) for key, node in blocks.settings.items()}
    for name in [key for key, node in entries.items() if isinstance(node, Leaf) and node.value is None and not _nullable(key)]:
        del entries[name]  # null stands for the default
    settings, found = validate(Settings, (), Block(entries, resolved.origin), broken)
    problems += found
    if settings is None:
        return None
    problems += _missing_files(settings.auth, ("auth",), resolved, [cwd], cwd) if isinstance(settings.auth, Auth) else []
    update: dict[str, Any] = {}
    if settings.cache_dir is not None:
        update["cache_dir"] = cwd / settings.cache_dir.expanduser()
    if isinstance(settings.auth, Auth) and settings.auth.token_file is not None:
        update["auth"] = Auth(token_file=cwd / settings.auth.token_file.expanduser())
    return settings.model_copy(update=update)


def _nullable(key: str) -> bool:
    return Settings.model_fields[key].default is None


def _instance(
    instance: InstanceBlock,
    references: References,
    resolved: Block,
    broken: set[KeyPath],
    roots: Sequence[Path],
    cwd: Path,
    problems: list[Problem],
) -> Instance | None:
    url = instance.block.entries.get("url")
    remote = isinstance(url, Leaf) and url.value is not None
    where = dotted(instance.path)
    body = instance.block.origin
    implementation = find(instance.kind, instance.implementation, roots, key_path=where, origin=body, remote=remote)
    problems += implementation.problems
    config, found = validate(implementation.model, instance.path, instance.block, broken | references.broken)
    problems += found
    if config is None:
        return None
    problems += _doubtful_keys(instance, implementation.model, config)
    directory = implementation.directory
    if directory is not None and not remote:
        problems += _check_entrypoint(instance, directory, config)
    if not remote:
        problems += _missing_files(config, instance.path, resolved, roots, cwd)
    if remote and "entrypoint" in instance.block.entries:
        origin = instance.block.entries["entrypoint"].origin
        message = "stands beside url: an instance that runs elsewhere is not started here"
        problems.append(Problem("wrong-value", f"{where}.entrypoint", message, "remove one of the two", origin))
    if isinstance(config, ResourcesServerConfig | AgentConfig) and config.datasets:
        config = config.model_copy(update={"datasets": [locate_dataset(dataset, roots, cwd) for dataset in config.datasets]})
    return Instance(
        name=instance.name,
        kind=instance.kind,
        implementation=instance.implementation,
        directory=directory or cwd / instance.kind / instance.implementation,
        config=config,
        raw=cast("dict[str, Any]", plain(instance.block)),
        references={dotted(found.path): found.ref for found in references.of[instance.name]},
    )


def _missing_files(config: BaseModel, path: KeyPath, resolved: Block, roots: Sequence[Path], cwd: Path) -> list[Problem]:
    """Files that fields of a model name, and that are not there."""
    problems: list[Problem] = []
    for name, info in type(config).model_fields.items():
        file: Path | None = getattr(config, name) if any(isinstance(mark, MustExist) for mark in info.metadata) else None
        if file is not None and find_file(file.expanduser(), roots) is None:
            key = (*path, name)
            hint = path_hint(cwd / file, roots, cwd)
            problems.append(Problem("file-missing", dotted(key), f"there is no such file ({cwd / file})", hint, origin_of(resolved, key)))
    return problems


def _doubtful_keys(instance: InstanceBlock, model: type[ServerConfig], config: ServerConfig) -> list[Problem]:
    """Keys of an implementation without a model of its own, which are nearly those that every server knows."""
    problems: list[Problem] = []
    for key in config.model_extra or {}:
        near = closest(key, model.model_fields, cutoff=0.9)
        node = instance.block.entries.get(key)
        if near is not None and node is not None:
            name = dotted((*instance.path, key))
            message = f"is not a key that every server knows, and nearly one ({instance.implementation} has no config.py to tell)"
            problems.append(Problem("unknown-key", name, message, f"did you mean '{near}'?", node.origin, "warning"))
    return problems


def _check_entrypoint(instance: InstanceBlock, directory: Path, config: ServerConfig) -> list[Problem]:
    if (directory / config.entrypoint).is_file():
        return []
    node = instance.block.entries.get("entrypoint")
    message = f"there is no file {config.entrypoint} in {directory}"
    key = f"{dotted(instance.path)}.entrypoint"
    origin = node.origin if node is not None else instance.block.origin
    return [Problem("file-missing", key, message, "correct the name, or add the file", origin)]


def _explicit_routes(resolved: Block, settings: Settings | None) -> dict[str, tuple[str, Origin]]:
    if settings is None:
        return {}
    routes: dict[str, tuple[str, Origin]] = {}
    for taskset, name in settings.environment_server_routes.items():
        node = at(resolved, ("environment_server_routes", taskset))
        routes[taskset] = (name, node.origin if node is not None else resolved.origin)
    return routes
