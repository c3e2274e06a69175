"""The servers that a collection uses: its own for as long as it lasts, or those of a run that is up."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gym.client import Peer
    from gym.config.plan import DatasetBinding, Plan
    from gym.rollouts.targets import Targets


@dataclass(frozen=True)
class Servers:
    """Servers that are up, as a collection needs them."""

    run_id: str
    targets: "Targets"
    peer: "Callable[[str], Peer]"
    """The client of an instance."""
    timeouts: Mapping[str, float | None]
    """Seconds that one episode's call may take, by environment server."""
    config_keys: Mapping[str, str]
    datasets: "tuple[DatasetBinding, ...]"
    default_agent: str | None

    def models(self) -> list[str]:
        """The model servers of its environment servers."""
        return [route.model for route in self.targets.environments.values() if route.model is not None]


@contextlib.asynccontextmanager
async def servers(plan: "Plan | None", *, no_serve: bool, run_id: str | None, started: "Plan | None" = None) -> "AsyncGenerator[Servers]":
    """The servers of a run that is up, or our own for as long as the context lasts: those in `started`, else all in `plan`."""
    from gym.config.digests import key_digests
    from gym.config.plan import DatasetBinding
    from gym.rollouts.targets import Targets
    from gym.runtime.head import server_blocks_digest

    if no_serve:
        from gym.runtime.attach import attach

        async with attach(run_id) as up:
            if plan is not None:
                _refuse_other_config(server_blocks_digest(plan), up.blocks)
            ours = Targets.from_plan(plan) if plan is not None else Targets({}, {})
            targets = Targets(up.routes, up.environments, ours.directories)
            datasets = tuple(DatasetBinding(instance, dataset) for instance, dataset in up.datasets)
            agent = plan.settings.agent_name if plan is not None else None
            yield Servers(up.run_id, targets, up.peer, up.episode_timeouts, up.config_keys, datasets, agent)
        return
    from gym.runtime.launch import launch
    from gym.runtime.logs import log_colocated

    assert plan is not None
    settings, started = plan.settings, started or plan
    log_colocated(settings)
    async with launch(started, settings.isolation or "colocated", say=lambda line: typer.echo(line, err=True)) as running:
        targets = Targets.from_plan(plan)
        try:
            yield Servers(
                running.run_id, targets, running.peer, plan.episode_timeouts, key_digests(started), plan.datasets, settings.agent_name
            )
        finally:
            running.hurry.set()  # every episode has ended or been cancelled: there is nothing to wait for


def plan_to_run(config: list[str] | None, model_type: str | None, overrides: list[str] | None, agent_type: str | None = None) -> "Plan":
    """The plan of a configuration; its warnings go to stderr. Raises ConfigErrors."""
    from gym.cli.env import before_a_run, examine, report
    from gym.config.errors import ConfigErrors

    examined = examine(config, model_type, overrides, agent_type)
    if examined.plan is None:
        raise ConfigErrors(examined.problems)
    report(before_a_run(examined.problems))
    return examined.plan


def _refuse_other_config(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    from gym.config.errors import UserError, listed

    different = sorted(name for name, digest in ours.items() if theirs.get(name) != digest)
    if different:
        raise UserError(
            f"the running servers were started with another configuration of {listed(different)}: "
            "give the same --config and overrides as to 'gym env start', or none"
        )
