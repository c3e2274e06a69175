"""What is wrong with a configuration's sandboxes, told before anything starts.

Owns the checks that need to know the providers: their options, and whether an agent that works inside a
sandbox can call its model from there. Loads no provider and contacts nobody; what only a running engine
can tell (an address that a firewall swallows) is tried from inside at the first episode, by `reach`.
"""

from collections.abc import Mapping
from typing import Any, cast

from gym.config import Examined, Problem
from gym.config.plan import Instance, Plan
from gym.config.schema import AgentConfig
from gym.config.tree import KeyPath, dotted
from gym.sandbox.providers.docker_options import INTERNAL, NOWHERE, DockerOptions
from gym.sandbox.providers.local_options import LocalOptions
from gym.sandbox.registry import ProviderBlock, check_block


def check_sandboxes(examined: Examined) -> list[Problem]:
    """The options of every provider block, and every agent in a sandbox that cannot reach its model."""
    problems: list[Problem] = []
    blocks: dict[str, ProviderBlock] = {}
    for name, block in examined.sandbox_providers.items():
        checked, found = check_block(name, block, examined.unresolved)
        problems += found
        if checked is not None:
            blocks[name] = checked
    if examined.plan is not None:
        problems += _check_reach(examined, examined.plan, blocks)
    return problems


def _check_reach(examined: Examined, plan: Plan, blocks: Mapping[str, ProviderBlock]) -> list[Problem]:
    problems: list[Problem] = []
    for route in plan.environments.values():
        server, agent, model = (plan.instances.get(name or "") for name in (route.resources, route.agent, route.model))
        if server is None or agent is None or model is None or not isinstance(agent.config, AgentConfig) or not agent.config.in_sandbox:
            continue
        block = blocks.get(str(getattr(server.config, "sandbox_provider", None)))
        closed = _closed(block, server, model) if block is not None else None
        if closed is None:
            continue
        path, what, hint = closed
        message = f"{what}, and the agent '{agent.name}' ({agent.implementation}) calls '{model.name}' from within one"
        problem = Problem("sandbox-reach", dotted(path), message, hint, examined.origin_of(path))
        if problem not in problems:
            problems.append(problem)
    return problems


def _closed(block: ProviderBlock, server: Instance, model: Instance) -> tuple[KeyPath, str, str] | None:
    """The key that keeps sandboxes of a server from its model, what it does, and what to do; None where nothing does."""
    own = (server.name, server.kind, server.implementation, "sandbox_config")
    spec: dict[str, Any] = cast("dict[str, Any]", server.raw.get("sandbox_config") or {})
    options: dict[str, Any] = cast("dict[str, Any]", spec.get("provider_options") or {})
    if isinstance(block.options, LocalOptions):
        places: list[tuple[KeyPath, Any]] = [((*own, "network"), spec.get("network"))]
        places += [((*own, "provider_options", "network"), options.get("network"))]
        places += [((block.name, block.provider, "create", "network"), block.options.create.network)]
        path, network = next(place for place in places if place[1] is not None)
        if network == NOWHERE and not block.options.unconfined:
            return path, "sandboxes have no network", "write network: host"
        return None
    assert isinstance(block.options, DockerOptions)
    base = block.options.create.network
    places = [((*own, "network"), spec.get("network")), ((*own, "provider_options", "network"), options.get("network"))]
    places += [((block.name, block.provider, "create", "network"), base)]
    path, network = next((place for place in places if place[1] is not None), places[-1])
    if network == NOWHERE:
        return path, "sandboxes have no network", f"write network: {INTERNAL}, which reaches model servers and tools of this run only"
    if network == INTERNAL and base != INTERNAL:
        hint = f"write {block.name}: {{{block.provider}: {{create: {{network: {INTERNAL}}}}}}}, from which the run makes it"
        return path, f"the network '{INTERNAL}' is made only where the provider block says so", hint
    if block.options.reach_host == NOWHERE and not model.remote:
        key = (block.name, block.provider, "reach_host")
        return key, "sandboxes have no way to this machine", "remove it to have the address found out, or name the one at which they do"
    return None
