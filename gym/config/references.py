"""References between instances, and the routes that follow from them.

Owns `{type, name}` at any depth of a block, which environment server binds which resources server,
agent and model, which pairings are allowed, and where each taskset goes. Works on plain typed data;
reports against the tree for positions.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gym.config.blocks import InstanceBlock
from gym.config.datasets import Declared
from gym.config.errors import Problem, closest, did_you_mean, shown
from gym.config.plan import Instance, Origin, Route
from gym.config.schema import KINDS, ResourcesServerConfig, ServerRef
from gym.config.tree import Block, KeyPath, Leaf, Node, dotted, is_missing, walk

_SINGULAR = {
    "resources_servers": "resources server",
    "responses_api_agents": "agent",
    "responses_api_models": "model server",
    "environment_servers": "environment server",
}


@dataclass(frozen=True)
class Reference:
    """One reference as written."""

    path: KeyPath
    """Within the implementation's block."""
    ref: ServerRef
    origin: Origin


@dataclass
class References:
    """The references of every instance by name, and what is wrong with any."""

    of: dict[str, list[Reference]] = field(default_factory=dict[str, list[Reference]])
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: set[KeyPath] = field(default_factory=set[KeyPath])
    """Full paths of references that were reported here."""


def find_references(
    instances: list[InstanceBlock],
    templates: Mapping[str, str],
    faulty: Collection[str] = (),
    removed: Mapping[str, Origin] | None = None,
) -> References:
    """Finds and checks every reference.

    `templates` are names that would exist, if nothing inherited from them, `removed` those that were set to null,
    and where; `faulty` are instances that were reported already: what refers to them is not reported beside.
    """
    out = References()
    kinds = {instance.name: instance.kind for instance in instances}
    for instance in instances:
        found: list[Reference] = []
        for path, node in walk(instance.block):
            reference = _reference(instance.path, path, node, out)
            if reference is None or reference.ref.name in faulty:
                continue
            full = (*instance.path, *path)
            problem = _check(reference, full, kinds, templates, removed or {}, instance)
            if problem is None:
                found.append(reference)
            else:
                out.problems.append(problem)
                out.broken.add(full)
        out.of[instance.name] = found
    return out


def _reference(base: KeyPath, path: KeyPath, node: Node, out: References) -> Reference | None:
    if not isinstance(node, Block) or set(node.entries) != {"type", "name"}:
        return None
    kind, name = node.entries["type"], node.entries["name"]
    if not isinstance(kind, Leaf) or not isinstance(kind.value, str) or not isinstance(name, Leaf) or not isinstance(name.value, str):
        return None
    if is_missing(kind) or is_missing(name):
        return None
    for known in KINDS:
        if kind.value == known and name.value:
            return Reference(path, ServerRef(type=known, name=name.value), name.origin)
    near = closest(kind.value, KINDS, cutoff=0.75)
    if near is not None and kind.value not in KINDS:
        full = (*base, *path)
        message = f"is not a kind of server ({shown(kind.value)})"
        out.problems.append(Problem("unknown-kind", dotted((*full, "type")), message, f"did you mean '{near}'?", kind.origin))
        out.broken.add(full)
    return None


def _check(
    reference: Reference,
    full: KeyPath,
    kinds: Mapping[str, str],
    templates: Mapping[str, str],
    removed: Mapping[str, Origin],
    instance: InstanceBlock,
) -> Problem | None:
    ref, key = reference.ref, dotted(full)
    actual = kinds.get(ref.name)
    if actual is None:
        if ref.name in templates:
            message = f"names '{ref.name}', which is only a template here ('{templates[ref.name]}' inherits from it)"
            hint = f"name '{templates[ref.name]}', or use _copy in place of _inherit_from to keep both"
        else:
            gone = f"is removed (null at {removed[ref.name]})" if ref.name in removed else "does not exist"
            message = f"names {_a(ref.type)} '{ref.name}', which {gone}"
            same = [name for name, kind in kinds.items() if kind == ref.type and name != instance.name]
            define = "keep it" if ref.name in removed else "define it"
            if ref.type == "responses_api_models":
                define = "add --model-type NAME, or a config that defines it"
            hint = did_you_mean(ref.name, same, otherwise=f"{define}, or name one of: {', '.join(same)}" if same else define)
        return Problem("unknown-reference", key, message, hint, reference.origin)
    if actual != ref.type:
        message = f"names '{ref.name}' as {_a(ref.type)}, but it is {_a(actual)}"
        same = [name for name, kind in kinds.items() if kind == ref.type]
        hint = did_you_mean(ref.name, same, otherwise=f"write type: {actual}" if not same else f"name one of: {', '.join(same)}")
        return Problem("wrong-kind", key, message, hint, reference.origin)
    return None


def _a(kind: str) -> str:
    noun = _SINGULAR.get(kind, kind)
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def environment_routes(instances: Mapping[str, Instance]) -> dict[str, Route]:
    """Each environment server's own route. Where it names only an agent, that agent's resources server stands in."""
    routes: dict[str, Route] = {}
    for name, instance in instances.items():
        if instance.kind != "environment_servers":
            continue
        resources = _target(instance, "resources_server", "resources_servers")
        agent = _target(instance, "agent_server", "responses_api_agents")
        harness = instances.get(agent) if agent is not None else None
        model = _target(instance, "model_server", "responses_api_models")
        if harness is not None:
            resources = resources or _target(harness, "resources_server", "resources_servers")
            model = model or _target(harness, "model_server", "responses_api_models")
        routes[name] = Route(name, resources, agent, model)
    return routes


def _target(instance: Instance, field_name: str, kind: str) -> str | None:
    ref = instance.references.get(field_name)
    return ref.name if ref is not None and ref.type == kind else None


def check_pairings(instances: Mapping[str, Instance], environments: Mapping[str, Route], references: References) -> list[Problem]:
    """Agents that a resources server does not allow, or that it would give no gold solution to although it is set to give it."""
    pairs: dict[tuple[str, str], tuple[str, str]] = {}
    for name, route in environments.items():
        if route.resources is not None and route.agent is not None:
            pairs.setdefault((route.resources, route.agent), (name, "agent_server"))
    for name, instance in instances.items():
        resources = _target(instance, "resources_server", "resources_servers")
        if instance.kind == "responses_api_agents" and resources is not None:
            pairs.setdefault((resources, name), (name, "resources_server"))
    problems: list[Problem] = []
    for (resources, agent), (where, field_name) in pairs.items():
        server, harness = instances.get(resources), instances.get(agent)
        if server is None or harness is None or not isinstance(server.config, ResourcesServerConfig):
            continue
        origin = next((found.origin for found in references.of.get(where, []) if found.path == (field_name,)), None)
        owner = instances[where]
        key = dotted((where, owner.kind, owner.implementation, field_name))
        used, config = harness.implementation, server.config
        pair = f"'{resources}' with the agent '{agent}' ({used})"
        if config.allowed_agents is not None and used not in config.allowed_agents:
            hint = f"use one of: {', '.join(config.allowed_agents) or '(none)'}, or add '{used}' to allowed_agents of '{resources}'"
            problems.append(Problem("pairing", key, f"pairs {pair}, which its allowed_agents do not list", hint, origin))
        if config.expose_gold_to and used not in config.expose_gold_to and field_name == "agent_server":
            hint = f"clear expose_gold_to of '{resources}', or use one of: {', '.join(config.expose_gold_to)}"
            message = f"pairs {pair}, while its expose_gold_to gives the gold solution to others only"
            problems.append(Problem("gold-exposed", key, message, hint, origin))
    return problems


@dataclass
class Routing:
    """Where each taskset goes, and what is wrong with any."""

    routes: dict[str, Route] = field(default_factory=dict[str, Route])
    problems: list[Problem] = field(default_factory=list[Problem])


def route_tasksets(
    explicit: Mapping[str, tuple[str, Origin]],
    datasets: list[Declared],
    environments: Mapping[str, Route],
    instances: Mapping[str, Instance],
) -> Routing:
    """Routes each taskset: as `environment_server_routes` says, else to the one environment server that binds the declaring instance.

    A data set without `taskset` is routed
    by its name where that is unambiguous, and otherwise not at all.
    """
    out = Routing()
    for taskset, (name, origin) in explicit.items():
        key = f"environment_server_routes.{taskset}"
        if name in environments:
            out.routes[taskset] = environments[name]
        elif name in instances:
            message = f"routes to '{name}', which is {_a(instances[name].kind)}"
            hint = did_you_mean(name, environments, otherwise="name an environment server")
            out.problems.append(Problem("wrong-kind", key, message, hint, origin))
        else:
            hint = did_you_mean(name, environments, otherwise="define it")
            out.problems.append(Problem("unknown-reference", key, f"routes to '{name}', which does not exist", hint, origin))
    derived: dict[str, str] = {}
    dropped: set[str] = set()
    for found in sorted(datasets, key=lambda entry: entry.binding.dataset.taskset is None):
        binding = found.binding
        named = binding.dataset.taskset is not None
        taskset = binding.dataset.taskset or binding.dataset.name
        if taskset in explicit or (not named and taskset in out.routes and taskset not in derived):
            continue
        candidates = [route for route in environments.values() if binding.instance in (route.resources, route.agent)]
        targets = ", ".join(route.environment for route in candidates)
        example = candidates[0].environment if candidates else "<environment server>"
        hint = f"write environment_server_routes: {{{taskset}: {example}}}"
        if len(candidates) != 1:
            if named:
                what = (
                    f"goes to more than one environment server ({targets})" if candidates else "goes nowhere: no environment server binds"
                )
                tail = "" if candidates else f" '{binding.instance}'"
                message = f"the taskset '{taskset}' {what}{tail}"
                out.problems.append(Problem("taskset-route", found.key("taskset"), message, hint, found.origin("taskset")))
            continue
        earlier = derived.get(taskset)
        if earlier is not None and earlier != example:
            if named:
                message = f"the taskset '{taskset}' goes to more than one environment server ({earlier}, {example})"
                out.problems.append(Problem("taskset-route", found.key("taskset"), message, hint, found.origin("taskset")))
            else:
                dropped.add(taskset)
            continue
        derived[taskset] = example
        out.routes[taskset] = candidates[0]
    named_tasksets = {binding.dataset.taskset for binding in (found.binding for found in datasets)}
    for taskset in dropped - named_tasksets:
        out.routes.pop(taskset, None)
    return out
