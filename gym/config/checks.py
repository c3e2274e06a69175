"""Checks that look across the whole plan: ports, hosts, secrets, ways to the tools, sandbox providers.

Each check is a pure function from the composed data to problems. What concerns one block alone is the
business of its model; data sets and time budgets have modules of their own.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from gym.config.errors import Problem, did_you_mean, shown
from gym.config.masking import is_placeholder, is_secret_key
from gym.config.plan import Instance, Plan, Route
from gym.config.roots import ENV_FILE
from gym.config.schema import AgentConfig, Settings
from gym.config.tree import Block, KeyPath, Leaf, dotted, is_missing, origin_of, walk

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::")
_SHELL_VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")


def check_secrets(root: Block, files: Collection[str]) -> list[Problem]:
    """Secrets written out in a file other than env.yaml; `files` are the shown paths of the files read."""
    problems: list[Problem] = []
    for path, node in walk(root):
        if not isinstance(node, Leaf) or not isinstance(node.value, str) or "${" in node.value or not path:
            continue
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if not is_secret_key(key) or is_placeholder(node.value) or is_missing(node):
            continue
        written = node.origin.path
        if written in files and Path(written).name != ENV_FILE:
            hint = f"move it to {ENV_FILE}, or write ${{oc.env:NAME}}"
            problems.append(
                Problem("secret-in-file", dotted(path), "a secret is written out in this file (value not shown)", hint, node.origin)
            )
    return problems


def check_shell_variables(root: Block) -> list[Problem]:
    """Values that a shell would fill in, and nobody here does."""
    problems: list[Problem] = []
    for path, node in walk(root):
        named = _SHELL_VARIABLE.fullmatch(node.value) if isinstance(node, Leaf) and isinstance(node.value, str) else None
        if named is not None:
            message, hint = f"is text here, and no environment variable ('{named[0]}')", f"write ${{oc.env:{named[1]}}}"
            problems.append(Problem("interpolation", dotted(path), message, hint, node.origin, "warning"))
    return problems


def check_not_empty(plan: Plan | None) -> list[Problem]:
    """A configuration that describes no server: nothing is wrong with it, and nothing can be run."""
    if plan is None or plan.instances:
        return []
    hint = "an instance is <name>: {<kind>: {<implementation>: {…}}}"
    return [Problem("no-instances", "", "the configuration has no server instance, so there is nothing to run", hint, severity="warning")]


def check_sandbox_providers(instances: Mapping[str, Block], paths: Mapping[str, KeyPath], providers: Collection[str]) -> list[Problem]:
    """Every `sandbox_provider: <name>` names a provider block."""
    problems: list[Problem] = []
    for name, block in instances.items():
        for path, node in walk(block):
            if (
                not path
                or path[-1] != "sandbox_provider"
                or not isinstance(node, Leaf)
                or not isinstance(node.value, str)
                or is_missing(node)
            ):
                continue
            if node.value not in providers:
                hint = did_you_mean(node.value, providers, otherwise=f"add a block, e.g. {node.value}: {{docker: {{}}}}")
                message = f"names the sandbox provider '{node.value}', of which there is no block"
                problems.append(Problem("unknown-provider", dotted((*paths[name], *path)), message, hint, node.origin))
    return problems


def check_tool_transports(instances: Mapping[str, Instance], environments: Mapping[str, Route], root: Block) -> list[Problem]:
    """Every way to the tools that an environment server asks for is one that its resources server offers and its agent can use."""
    problems: list[Problem] = []
    for name, route in environments.items():
        asked: list[str] = getattr(instances[name].config, "resources_tool_transports", [])
        path: KeyPath = (name, instances[name].kind, instances[name].implementation, "resources_tool_transports")

        def report(message: str, hint: str, path: KeyPath = path) -> None:
            problems.append(Problem("tool-transport", dotted(path), message, hint, origin_of(root, path)))

        server = instances.get(route.resources or "")
        offers = server is None or server.remote or getattr(server.config, "expose_tools_over_mcp", False)
        if server is not None and "mcp" in asked and not offers:
            hint = f"set expose_tools_over_mcp: true on '{server.name}', or leave mcp out"
            report(f"asks for the tools of '{server.name}' over MCP, which it does not offer", hint)
        agent = instances.get(route.agent or "")
        usable = agent.config.tool_transports if agent is not None and isinstance(agent.config, AgentConfig) else None
        unusable = [transport for transport in asked if usable is not None and transport not in usable]
        if agent is not None and unusable:
            hint = f"leave it out; {agent.implementation} uses {', '.join(sorted(usable or [])) or 'no tools of the task'}"
            report(f"asks for {', '.join(unusable)}, which the agent '{agent.name}' ({agent.implementation}) cannot use", hint)
    return problems


def check_addresses(instances: Mapping[str, Instance], settings: Settings, root: Block) -> list[Problem]:
    """Fixed ports that are taken twice, and hosts that are none."""
    problems: list[Problem] = []
    taken: list[tuple[str, int, str]] = []
    listeners: list[tuple[KeyPath, str, int | None]] = [(("head_server",), settings.head_server.host, settings.head_server.port)]
    problems += _check_host(settings.default_host, ("default_host",), root)
    problems += _check_host(settings.head_server.host, ("head_server", "host"), root)
    for instance in instances.values():
        path: KeyPath = (instance.name, instance.kind, instance.implementation)
        if instance.remote:
            continue
        host = instance.config.host
        if host is not None:
            problems += _check_host(host, (*path, "host"), root)
            if settings.use_absolute_ip and host in _LOOPBACK:
                message = f"listens on loopback only ({host}), although use_absolute_ip is set"
                hint = "remove host, or set use_absolute_ip to false"
                problems.append(Problem("host", dotted((*path, "host")), message, hint, origin_of(root, (*path, "host")), "warning"))
        listeners.append((path, host or settings.default_host, instance.config.port))
    for path, host, port in listeners:
        if not port:
            continue
        key = (*path, "port")
        other = next((owner for where, number, owner in taken if number == port and _overlap(where, host)), None)
        if other is not None:
            message = f"the port {port} is taken by {other} as well"
            problems.append(
                Problem("port-taken", dotted(key), message, "give another port, or none to get a free one", origin_of(root, key))
            )
        taken.append((host, port, f"'{path[0]}'"))
    return problems


def _overlap(one: str, other: str) -> bool:
    same = one == other or {one, other} <= set(_LOOPBACK)
    return same or one in _ANY or other in _ANY


def _check_host(host: str, path: KeyPath, root: Block) -> list[Problem]:
    bracketless = host.strip("[]")
    if not host or "/" in host or any(part.isspace() for part in host) or (bracketless.count(":") == 1):
        hint = "write a host name or an address without scheme and port"
        return [Problem("host", dotted(path), f"is not a host ({shown(host)})", hint, origin_of(root, path))]
    return []
