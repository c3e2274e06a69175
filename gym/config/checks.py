"""Checks that look across the whole plan: files, ports, hosts, secrets, time budgets, sandbox providers.

Each check is a pure function from the composed data to problems; none touches anything but the
existence of files. What concerns one block alone is the business of its model.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gym.config.errors import Problem, did_you_mean, shown
from gym.config.licenses import license_hint
from gym.config.masking import is_placeholder, is_secret_key
from gym.config.plan import DatasetBinding, Instance, Origin, Plan, Route
from gym.config.roots import ENV_FILE, find_file
from gym.config.schema import AgentConfig, Dataset, EnvironmentServerConfig, Settings
from gym.config.tree import Block, KeyPath, Leaf, Node, at, dotted, is_missing, walk

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::")


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


def check_not_empty(plan: Plan | None) -> list[Problem]:
    """A configuration that describes no server: nothing is wrong with it, and nothing can be run."""
    if plan is None or plan.instances:
        return []
    hint = "an instance is <name>: {<kind>: {<implementation>: {…}}}"
    return [Problem("no-instances", "", "the configuration has no server instance, so there is nothing to run", hint, severity="warning")]


def locate_dataset(dataset: Dataset, roots: Sequence[Path], cwd: Path) -> Dataset:
    """The data set with absolute paths: where a root has the file, there; else below the working directory."""
    script = dataset.prepare_script
    return dataset.model_copy(
        update={
            "jsonl_fpath": find_file(dataset.jsonl_fpath, roots) or (cwd / dataset.jsonl_fpath),
            "prepare_script": None if script is None else (find_file(script, roots) or (cwd / script)),
        }
    )


def check_dataset(binding: DatasetBinding, key: str, origin: Origin) -> list[Problem]:
    """A data file or prepare script that is not there. Data that a script makes is only missed with a warning."""
    dataset = binding.dataset
    problems: list[Problem] = []
    script = dataset.prepare_script
    if script is not None and not script.is_file():
        message = f"there is no such script ({script})"
        problems.append(Problem("file-missing", f"{key}.prepare_script", message, "correct the path", origin))
    doubt = license_hint(dataset.license) if dataset.license is not None else None
    if doubt is not None:
        message = f"is not the name of a known licence ({shown(dataset.license)})"
        problems.append(Problem("unknown-license", f"{key}.license", message, doubt, origin, "warning"))
    if not dataset.jsonl_fpath.is_file():
        path = f"there is no such file ({dataset.jsonl_fpath})"
        if dataset.type == "example":
            hint = "correct the path; example rows belong to the server and are committed with it"
            problems.append(Problem("file-missing", f"{key}.jsonl_fpath", path, hint, origin))
        else:
            hint = f"run {script} to make it" if script is not None else "put the data there, or name a prepare_script"
            problems.append(Problem("data-not-prepared", f"{key}.jsonl_fpath", path, hint, origin, "warning"))
    return problems


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
            problems.append(Problem("tool-transport", dotted(path), message, hint, _origin(root, path)))

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


_STOP_SECONDS = 120
"""What stopping a task's sandbox may take, at most."""
_CAPTURE_SECONDS = 180
"""One of the two steps that take a patch out of a sandbox, where the server does not say."""


def check_time_budgets(instances: Mapping[str, Instance], environments: Mapping[str, Route], root: Block) -> list[Problem]:
    """What runs inside of something else must end before it does: an activation, an episode with its cleanup, a sandbox."""
    problems: list[Problem] = []
    for name, route in environments.items():
        environment = instances[name].config
        if isinstance(environment, EnvironmentServerConfig):
            server, agent = instances.get(route.resources or ""), instances.get(route.agent or "")
            problems += _budgets(instances[name], environment, server, agent, root)
    return problems


def _budgets(
    environment: Instance, config: EnvironmentServerConfig, server: Instance | None, agent: Instance | None, root: Block
) -> list[Problem]:
    problems: list[Problem] = []

    def refuse(instance: Instance, keys: KeyPath, message: str, hint: str) -> None:
        path: KeyPath = (instance.name, instance.kind, instance.implementation, *keys)
        problems.append(Problem("time-budget", dotted(path), message, hint, _origin(root, path)))

    field = agent.config.time_ceiling if agent is not None and isinstance(agent.config, AgentConfig) else None
    worker: float | None = getattr(agent.config, field) if agent is not None and field is not None else None
    ttl, episode, cleanup = _ttl(server), config.default_episode_timeout_seconds, config.cleanup_timeout_seconds
    if agent is not None and field is not None and worker is not None and episode is not None and worker >= episode:
        message = f"the episode of '{environment.name}' ends too early: {field} {worker:.12g} s does not fit into its {episode:.12g} s"
        refuse(agent, (field,), message, f"set {field} below {episode:.12g}, or raise default_episode_timeout_seconds")
    if server is None or ttl is None:
        return problems
    at: KeyPath = ("sandbox_config", "ttl_s")
    if episode is not None and episode + 3 * cleanup >= ttl:
        total = episode + 3 * cleanup
        message = (
            f"the sandbox ends too early for '{environment.name}': episode {episode:.12g} + 3 × cleanup {cleanup:.12g} = {total:.12g} s "
            f"does not fit into ttl_s {ttl:.12g} s"
        )
        refuse(server, at, message, f"set ttl_s above {total:.12g}, or lower default_episode_timeout_seconds of '{environment.name}'")
    step: float = getattr(server.config, "setup_timeout", _CAPTURE_SECONDS)
    if agent is not None and worker is not None and worker + 2 * step + _STOP_SECONDS >= ttl:
        total = worker + 2 * step + _STOP_SECONDS
        message = (
            f"the sandbox ends too early for '{agent.name}': {field} {worker:.12g} + 2 × patch capture {step:.12g} + stop {_STOP_SECONDS} "
            f"= {total:.12g} s does not fit into ttl_s {ttl:.12g} s"
        )
        refuse(server, at, message, f"set ttl_s above {total:.12g}, or lower {field} of '{agent.name}'")
    return problems


def _ttl(server: Instance | None) -> float | None:
    """How long the sandboxes of a resources server live, where it says so."""
    sandbox: Any = server.raw.get("sandbox_config") if server is not None else None
    ttl: Any = cast("dict[str, Any]", sandbox).get("ttl_s") if isinstance(sandbox, dict) else None
    return None if isinstance(ttl, bool) or not isinstance(ttl, int | float) else ttl


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
                problems.append(Problem("host", dotted((*path, "host")), message, hint, _origin(root, (*path, "host")), "warning"))
        listeners.append((path, host or settings.default_host, instance.config.port))
    for path, host, port in listeners:
        if not port:
            continue
        key = (*path, "port")
        other = next((owner for where, number, owner in taken if number == port and _overlap(where, host)), None)
        if other is not None:
            message = f"the port {port} is taken by {other} as well"
            problems.append(Problem("port-taken", dotted(key), message, "give another port, or none to get a free one", _origin(root, key)))
        taken.append((host, port, f"'{path[0]}'"))
    return problems


def _overlap(one: str, other: str) -> bool:
    same = one == other or {one, other} <= set(_LOOPBACK)
    return same or one in _ANY or other in _ANY


def _check_host(host: str, path: KeyPath, root: Block) -> list[Problem]:
    bracketless = host.strip("[]")
    if not host or "/" in host or any(part.isspace() for part in host) or (bracketless.count(":") == 1):
        hint = "write a host name or an address without scheme and port"
        return [Problem("host", dotted(path), f"is not a host ({shown(host)})", hint, _origin(root, path))]
    return []


def _origin(root: Node, path: KeyPath) -> Origin | None:
    """Where the value stands, or its nearest ancestor."""
    for end in range(len(path), 0, -1):
        node = at(root, path[:end])
        if node is not None:
            return node.origin
    return None
