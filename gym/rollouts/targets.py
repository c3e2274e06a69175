"""Where rows go: from a row to the environment server that runs it.

Invariant: a row goes to exactly one environment server, or to none with a reason. What the user
chose (`--env`, `--agent`) is a `UserError` if it cannot be; what a row says is a `TaskError` of that row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gym.config.errors import UserError, did_you_mean, listed
from gym.config.plan import Plan, Route
from gym.tasks.materialize import TaskError


@dataclass(frozen=True)
class Targets:
    """The environment servers of a run, and which tasksets lead to them."""

    routes: Mapping[str, Route]
    """Taskset -> route."""
    environments: Mapping[str, Route]
    """Environment server -> what is behind it."""
    directories: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Environment server -> the implementation folder whose `task_data.py` describes its tasks."""

    @classmethod
    def from_plan(cls, plan: Plan) -> "Targets":
        """The targets of a composed configuration."""
        directories: dict[str, Path] = {}
        for name, route in plan.environments.items():
            for instance in (route.resources, name):
                if instance is not None and instance in plan.instances:
                    directories[name] = plan.instances[instance].directory
                    break
        return cls(routes=plan.routes, environments=plan.environments, directories=directories)

    def choose(self, environment: str | None = None, agent: str | None = None) -> str | None:
        """The environment server that the user named, directly or by its agent; None if nothing was named. Raises UserError."""
        if environment is not None and environment not in self.environments:
            raise UserError(f"--env {environment}: there is no such environment server — {did_you_mean(environment, self.environments)}")
        if agent is None:
            return environment
        bound = self.by_agent(agent)
        if environment is not None:
            if environment not in bound:
                raise UserError(f"--env {environment} does not run the agent {agent!r} (--agent): give one of the two")
            return environment
        if not bound:
            agents = [route.agent for route in self.environments.values() if route.agent]
            hint = did_you_mean(agent, agents) or "none of them names one"
            raise UserError(f"--agent {agent}: no environment server runs this agent — {hint}")
        if len(bound) > 1:
            raise UserError(f"--agent {agent}: more than one environment server runs it ({listed(bound)}): choose with --env")
        return bound[0]

    def by_agent(self, agent: str) -> list[str]:
        """The environment servers that run an agent instance."""
        return sorted(name for name, route in self.environments.items() if route.agent == agent)

    def of_flat_row(self, row: Mapping[str, Any], chosen: str | None, taskset: str | None = None) -> str:
        """Where a flat row goes; `taskset` is its data set's, where known.

        Raises TaskError for what the row says, UserError if nobody says anything.
        """
        if chosen is not None:
            return chosen
        reference = row.get("agent_ref")
        if isinstance(reference, Mapping) and (name := cast(Mapping[str, Any], reference).get("name")) is not None:
            bound = self.by_agent(str(name))
            if len(bound) == 1:
                return bound[0]
            if bound:
                raise TaskError(
                    f"agent_ref names {name!r}, which more than one environment server runs ({listed(bound)}): choose with --env"
                )
            if str(name) in self.environments:
                return str(name)
            raise TaskError(f"agent_ref names {name!r}, which no environment server runs: choose with --env or --agent")
        if taskset is not None and taskset in self.routes:
            return self.routes[taskset].environment
        return self._only("rows that name no agent")

    def of_taskset(self, taskset: str, chosen: str | None) -> str:
        """Where a materialized row goes. Raises TaskError if its taskset is routed elsewhere than chosen, or nowhere."""
        route = self.routes.get(taskset)
        if route is None:
            if chosen is not None:
                return chosen
            if self.routes or len(self.environments) > 1:
                raise TaskError(f"no route for taskset {taskset!r} — {did_you_mean(taskset, self.routes, 'choose with --env')}")
            return self._only("materialized rows")
        if chosen is None or chosen == route.environment:
            return route.environment
        # Another agent for the same tasks is a choice; another resources server would be the wrong verifier.
        if self.environments[chosen].resources == route.resources:
            return chosen
        raise TaskError(f"taskset {taskset!r} is routed to {route.environment!r}, whose resources server is not that of {chosen!r}")

    def taskset_of(self, environment: str, dataset_taskset: str | None) -> str:
        """The taskset of flat rows that go to `environment`."""
        if dataset_taskset is not None:
            return dataset_taskset  # a task's name is its data's, whoever runs it
        leading = [taskset for taskset, route in self.routes.items() if route.environment == environment]
        if len(leading) == 1:
            return leading[0]
        return self.environments[environment].resources or environment

    def _only(self, what: str) -> str:
        if len(self.environments) == 1:
            return next(iter(self.environments))
        if not self.environments:
            raise UserError("the configuration has no environment server, so nothing can run the rows")
        raise UserError(
            f"there is more than one environment server ({listed(sorted(self.environments))}): for {what}, choose with --env or --agent"
        )
