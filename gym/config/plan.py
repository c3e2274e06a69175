"""The `Plan`: what a composed and checked configuration says is to run.

Plain data, made by `gym.config.load`, read by the runtime, the collector and the reports. Its
invariant: every reference in it resolves, every value is present, every path is absolute.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gym.config.schema import Dataset, EnvironmentServerConfig, Kind, ServerConfig, ServerRef, Settings


@dataclass(frozen=True)
class Origin:
    """Where a value was set: a file and 1-based position, or the command line (`path` is "command line")."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


@dataclass(frozen=True)
class Instance:
    """One server instance."""

    name: str
    kind: Kind
    implementation: str
    directory: Path
    """The implementation's folder, e.g. `…/resources_servers/swebench`."""
    config: ServerConfig
    """The typed configuration: the implementation's own model where it has one."""
    raw: Mapping[str, Any]
    """The resolved block as plain data: what a child process is handed."""
    references: Mapping[str, ServerRef] = field(default_factory=dict[str, ServerRef])
    """Config field -> the instance that it names."""

    @property
    def remote(self) -> bool:
        """Whether the instance runs elsewhere and is only called."""
        return self.config.url is not None

    @property
    def requirements(self) -> Path | None:
        """The file of Python requirements beyond ours, if the implementation has one."""
        path = self.directory / "requirements.txt"
        return path if path.is_file() else None

    @property
    def python(self) -> str | None:
        """The Python that those requirements need, e.g. `3.12`, where the implementation says so; else ours will do."""
        path = self.directory / "python.txt"
        return path.read_text().strip() if path.is_file() else None


@dataclass(frozen=True)
class Route:
    """Where rows of one taskset go; None where nobody says.

    `resources` is the environment server's own, else its agent's; `model` is its own, else its agent's.
    """

    environment: str
    resources: str | None = None
    agent: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class DatasetBinding:
    """A data set and the instance that declares it."""

    instance: str
    dataset: Dataset


@dataclass(frozen=True)
class Plan:
    """Everything that is to run, with where each value came from."""

    settings: Settings
    instances: Mapping[str, Instance]
    routes: Mapping[str, Route]
    """Taskset -> route."""
    environments: Mapping[str, Route]
    """Environment server instance -> its own route; also for those that no taskset is bound to."""
    sandbox_providers: Mapping[str, Mapping[str, Any]]
    """Provider block by name, e.g. `{"sandbox": {"docker": {...}}}`."""
    datasets: tuple[DatasetBinding, ...]
    origins: Mapping[str, Origin]
    """Dotted key path -> where it was set."""
    resolved: Mapping[str, Any]
    """The whole composed configuration as plain data, secrets included."""

    def only(self, names: Iterable[str]) -> "Plan":
        """The same with these instances alone and what they refer to; nothing is routed to any."""
        kept: dict[str, Instance] = {}
        wanted = list(names)
        while wanted:
            name = wanted.pop()
            if name not in kept:
                kept[name] = self.instances[name]
                wanted += [reference.name for reference in kept[name].references.values()]
        return replace(self, instances=kept, routes={}, environments={}, datasets=())

    @property
    def episode_timeouts(self) -> dict[str, float | None]:
        """How long a call to each environment server takes at most, in seconds, from its own limits; None where it sets none."""
        configs = {name: self.instances[name].config for name in self.environments}
        return {name: config.longest_run_seconds for name, config in configs.items() if isinstance(config, EnvironmentServerConfig)}
