"""`--agent-type`: another harness for every environment of a configuration.

Acts on the tree without directives: each environment server's agent of another implementation is replaced by a copy of the
instance that the wanted one ships, under a name of its own, with the model server and the data sets of the agent whose place
it takes. Whether the pair is allowed, and can use the tools, is checked later, as for every configuration.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gym.config.errors import Problem, UserError
from gym.config.plan import Origin
from gym.config.roots import find_file, type_config
from gym.config.tree import Block, KeyPath, Leaf, assign, at, dotted, is_missing
from gym.config.yamlfile import read_yaml

OPTION = "--agent-type"
_AGENTS, _ENVIRONMENTS = "responses_api_agents", "environment_servers"
_TAKEN_OVER = ("model_server", "datasets")


@dataclass(frozen=True)
class Swapped:
    """The tree with the wanted harness."""

    root: Block
    problems: list[Problem] = field(default_factory=list[Problem])


def swap_agents(root: Block, agent_type: str, templates: Collection[str], roots: Sequence[Path]) -> Swapped:
    """Swaps the agents of all environment servers that are no templates. Raises UserError if the wanted harness ships no instance."""
    source = _shipped_instance(agent_type, roots)
    wanted, origin = agent_type.partition("/")[0], Origin(f"{OPTION} {agent_type}")
    body = at(root, (source, _AGENTS, wanted))
    bound = list(_bindings(root, templates))
    if not isinstance(body, Block) or not bound:
        message = "there is no environment server whose agent it could take the place of"
        return Swapped(root, [Problem("agent-type", "", message, "add the config of an environment", origin)])
    problems: list[Problem] = []
    names: dict[str, str] = {}
    for path, agent in bound:
        found = _implementation(root, agent)
        if found is None or found[0] == wanted:
            continue  # nothing there, which is reported elsewhere; or nothing to do
        if at(root, (*path, "resources_server")) is None:
            message = f"hands whole rollouts to its agent '{agent}' ({found[0]}), so another harness cannot take its place"
            hint = "use a recipe with sessions (single_agent_turn)"
            problems.append(Problem("agent-type", dotted((*path, "agent_server")), message, hint, origin))
            continue
        name = names.setdefault(agent, _new_name(root, agent, found[0], wanted))
        kept = {key: found[1].entries[key] for key in _TAKEN_OVER if key in found[1].entries}
        made = Block({_AGENTS: Block({wanted: replace(body, entries={**body.entries, **kept})}, origin)}, origin)
        root = assign(root, (name,), made)
        root = assign(root, (*path, "agent_server", "name"), Leaf(name, origin))
    left = {source, *names} - {agent for _, agent in _bindings(root, templates)} - set(templates)
    return Swapped(replace(root, entries={key: node for key, node in root.entries.items() if key not in left}), problems)


def _shipped_instance(agent_type: str, roots: Sequence[Path]) -> str:
    """The instance that the shipped config defines; the last, where there are several."""
    path = type_config(_AGENTS, OPTION, agent_type, roots)
    found = find_file(path, roots)
    file = read_yaml(found, str(path))[0] if found is not None else None
    names = [name for name in file.entries if at(file, (name, _AGENTS, agent_type.partition("/")[0])) is not None] if file else []
    if not names:
        raise UserError(f"{OPTION} {agent_type}: {path} defines no such agent — name another flavour")
    return names[-1]


def _bindings(root: Block, templates: Collection[str]) -> Iterator[tuple[KeyPath, str]]:
    """Where the block of each environment server stands, and the agent that it names."""
    for name in root.entries:
        kind = at(root, (name, _ENVIRONMENTS))
        for implementation in kind.entries if isinstance(kind, Block) and name not in templates else ():
            path = (name, _ENVIRONMENTS, implementation)
            agent = at(root, (*path, "agent_server", "name"))
            if isinstance(agent, Leaf) and isinstance(agent.value, str) and not is_missing(agent):
                yield path, agent.value


def _implementation(root: Block, agent: str) -> tuple[str, Block] | None:
    """What an agent is, and its block; None if that cannot be told."""
    kind = at(root, (agent, _AGENTS))
    if not isinstance(kind, Block) or len(kind.entries) != 1:
        return None
    ((name, body),) = kind.entries.items()
    return name, body if isinstance(body, Block) else Block({}, kind.origin)


def _new_name(root: Block, agent: str, before: str, wanted: str) -> str:
    """`gsm8k_agent` and `gsm8k_simple_agent` become `gsm8k_opencode_agent`; where there is one already, the name stays."""
    suffix = next((ending for ending in (f"_{before}", "_agent") if agent.endswith(ending)), "")
    name = f"{agent.removesuffix(suffix)}_{wanted}"
    return agent if name in root.entries else name
