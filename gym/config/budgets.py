"""Time budgets: what runs inside of something else must end before it does.

Owns three sums: an activation within its episode, an episode with its cleanup within its sandbox, an
activation with the capture of its patch within that sandbox. Each is reported at the number that was
laid last, since it is the one that broke the sum. Times are in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gym.config.errors import Problem
from gym.config.overrides import COMMAND_LINE
from gym.config.plan import Instance, Route
from gym.config.schema import AgentConfig, EnvironmentServerConfig
from gym.config.tree import Block, KeyPath, at, dotted, written_at

_STOP_SECONDS = 120
"""What stopping a task's sandbox may take, at most."""
_CAPTURE_SECONDS = 180
"""One of the two steps that take a patch out of a sandbox, where the server does not say."""
_TTL: KeyPath = ("sandbox_config", "ttl_s")


@dataclass(frozen=True)
class _Bound:
    """A number that takes part in a sum: where it stands, and what it would have to be for the sum to hold."""

    instance: Instance
    keys: KeyPath
    fits: str

    @property
    def path(self) -> KeyPath:
        return (self.instance.name, self.instance.kind, self.instance.implementation, *self.keys)

    @property
    def name(self) -> str:
        return str(self.keys[-1])


def check_time_budgets(
    instances: Mapping[str, Instance], environments: Mapping[str, Route], root: Block, layers: Sequence[str]
) -> list[Problem]:
    """Every sum that does not hold; `layers` are the shown paths of the files, in the order in which they were laid."""
    budgets = _Budgets(root, [*layers, COMMAND_LINE.path])
    for name, route in environments.items():
        environment = instances[name]
        if isinstance(environment.config, EnvironmentServerConfig):
            server, agent = instances.get(route.resources or ""), instances.get(route.agent or "")
            budgets.check(environment, environment.config, server, agent)
    return budgets.problems


class _Budgets:
    def __init__(self, root: Block, layers: Sequence[str]) -> None:
        self._root = root
        self._layers = layers
        self.problems: list[Problem] = []

    def check(self, environment: Instance, config: EnvironmentServerConfig, server: Instance | None, agent: Instance | None) -> None:
        episode, cleanup = config.default_episode_timeout_seconds, config.cleanup_timeout_seconds
        field = agent.config.time_ceiling if agent is not None and isinstance(agent.config, AgentConfig) else None
        worker: float | None = getattr(agent.config, field) if agent is not None and field is not None else None
        if agent is not None and field is not None and worker is not None and episode is not None and worker >= episode:
            message = f"the episode of '{environment.name}' ends too early: {field} {worker:.12g} s does not fit into its {episode:.12g} s"
            inner = _Bound(agent, (field,), f"below {episode:.12g}")
            self._refuse(message, inner, _Bound(environment, ("default_episode_timeout_seconds",), f"above {worker:.12g}"))
        ttl = _ttl(server)
        if server is None or ttl is None:
            return
        if episode is not None and episode + 3 * cleanup >= ttl:
            total = episode + 3 * cleanup
            parts = f"episode {episode:.12g} + 3 × cleanup {cleanup:.12g} = {total:.12g} s"
            message = f"the sandbox ends too early for '{environment.name}': {parts} does not fit into ttl_s {ttl:.12g} s"
            self._refuse(
                message,
                _Bound(server, _TTL, f"above {total:.12g}"),
                _Bound(environment, ("default_episode_timeout_seconds",), _below(ttl - 3 * cleanup)),
                _Bound(environment, ("cleanup_timeout_seconds",), _below((ttl - episode) / 3)),
            )
        step: float = getattr(server.config, "setup_timeout", _CAPTURE_SECONDS)
        if agent is not None and field is not None and worker is not None and worker + 2 * step + _STOP_SECONDS >= ttl:
            total = worker + 2 * step + _STOP_SECONDS
            parts = f"{field} {worker:.12g} + 2 × patch capture {step:.12g} + stop {_STOP_SECONDS} = {total:.12g} s"
            message = f"the sandbox ends too early for '{agent.name}': {parts} does not fit into ttl_s {ttl:.12g} s"
            self._refuse(
                message,
                _Bound(server, _TTL, f"above {total:.12g}"),
                _Bound(agent, (field,), _below(ttl - 2 * step - _STOP_SECONDS)),
                _Bound(server, ("setup_timeout",), _below((ttl - worker - _STOP_SECONDS) / 2)),
            )

    def _refuse(self, message: str, *bounds: _Bound) -> None:
        """Report a sum at the bound that was laid last; the first of the others that could give way is named beside it."""
        blamed = max(bounds, key=self._laid)
        other = next((bound for bound in bounds if bound is not blamed and bound.fits), None)
        ways = [f"set {blamed.name} {blamed.fits}"] if blamed.fits else []
        if other is not None:
            ways.append(f"set {other.name} of '{other.instance.name}' {other.fits}")
        node = at(self._root, blamed.path)
        self.problems.append(
            Problem("time-budget", dotted(blamed.path), message, ", or ".join(ways), None if node is None else written_at(node))
        )

    def _laid(self, bound: _Bound) -> int:
        """How late a bound was laid; -1 where it is a default. `max` takes the first of equals."""
        node = at(self._root, bound.path)
        origin = None if node is None else written_at(node)
        return self._layers.index(origin.path) if origin is not None and origin.path in self._layers else -1


def _below(limit: float) -> str:
    return f"below {limit:.12g}" if limit > 0 else ""


def _ttl(server: Instance | None) -> float | None:
    """How long the sandboxes of a resources server live, where it says so."""
    sandbox: Any = server.raw.get("sandbox_config") if server is not None else None
    ttl: Any = cast("dict[str, Any]", sandbox).get("ttl_s") if isinstance(sandbox, dict) else None
    return None if isinstance(ttl, bool) or not isinstance(ttl, int | float) else ttl
