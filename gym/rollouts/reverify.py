"""Verdicts again without the agent: a collection of which the input is an earlier run's output.

The collector does all that it does for episodes; what differs is where tasks come from, which is here, and
that verifying takes the place of an episode (`gym.rollouts.verifier`). The earlier run's files are read and never changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from gym.client import CallError, Peer
from gym.config.errors import UserError
from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.protocol.resources import ReverifyMode
from gym.protocol.rollouts import ENVIRONMENT_SERVER, FAILURE_CLASS, ROLLOUT_ID
from gym.rollouts.earlier import EarlierRun, Tasks
from gym.rollouts.files import OutputFiles
from gym.rollouts.options import CollectOptions
from gym.rollouts.records import RecordMaker
from gym.rollouts.source import Preparation, Prepared
from gym.rollouts.targets import Targets
from gym.servers.replies import object_of
from gym.tasks.materialize import Materialized, TaskError
from gym.tasks.rows import Row

EXCHANGE = ("responses_create_params", "response")
"""What of a rollout is verified."""
_MODE_SECONDS = 30.0

Modes = Mapping[str, str]
"""Resources server -> how it verifies again."""


def verifying_servers(targets: Targets, environment: str | None) -> list[str]:
    """The resources servers that rollouts may go to: that of the environment server called so, else of any. Raises UserError for none."""
    chosen = targets.choose(environment)
    routes = [targets.environments[chosen]] if chosen is not None else targets.environments.values()
    names = sorted({route.resources for route in routes if route.resources is not None})
    if not names:
        raise UserError(f"{chosen or 'the configuration'} names no resources server, so there is nobody to verify rollouts")
    return names


async def modes_of(names: Iterable[str], peer: Callable[[str], Peer]) -> dict[str, str]:
    """What these resources servers say of themselves; one that knows no such question cannot. Raises UserError if one does not answer."""
    modes: dict[str, str] = {}
    for name in names:
        try:
            modes[name] = str(object_of(await peer(name).get(routes.REVERIFY_MODE, timeout=_MODE_SECONDS), name).get("mode"))
        except CallError as error:
            if error.status not in (404, 405, 501):
                raise UserError(f"{name} does not say whether it can verify again: {error.message}") from None
            modes[name] = "unsupported"
        except ContractError as error:
            raise UserError(f"{name} does not say whether it can verify again: {error.message}") from None
    return modes


def targets_of(targets: Targets) -> Targets:
    """The same targets with no agent in them: nobody acts, so no row gets another agent's name."""
    return replace(targets, environments={name: replace(route, agent=None) for name, route in targets.environments.items()})


class Rollouts(Preparation):
    """Makes tasks of an earlier run's rows: each is its task as it was, and where the rollout stands in the output."""

    def __init__(self, options: CollectOptions, targets: Targets, records: RecordMaker, files: OutputFiles, *, modes: Modes) -> None:
        super().__init__(options, targets, records, files)
        self._modes = modes
        self._tasks: Tasks | None = None

    def run(self, stopped: Callable[[], bool] = lambda: False) -> Prepared:
        """See `Preparation.run`."""
        self._tasks = Tasks(EarlierRun(self._options.input).files.materialized)
        try:
            return super().run(stopped)
        finally:
            self._tasks.close()

    def _task(self, row: Row, index: int) -> tuple[str, Materialized]:
        value = row.value
        if FAILURE_CLASS in value:
            raise TaskError("it is a failed attempt, and there is nothing to verify")
        if not isinstance(value.get(ROLLOUT_ID), str):
            raise TaskError(f"it has no {ROLLOUT_ID}, so it is no rollout that 'gym eval run' wrote")
        if not all(isinstance(value.get(key), dict) for key in EXCHANGE):
            raise TaskError(f"it has no {' or no '.join(EXCHANGE)}, so there is nothing to verify")
        assert self._tasks is not None
        task = self._tasks.of(value[ROLLOUT_ID])
        environment = self._environment(value, task)
        resources_server(self._targets, environment, self._modes)
        self._check_schema(environment, task["task_input"])
        place = {"offset": row.offset, "length": len(row.raw)}
        return environment, {"task_id": task["task_id"], "task_input": {"task_input": task["task_input"], "rollout": place}}

    def _environment(self, row: dict[str, Any], task: Materialized) -> str:
        if self._chosen is not None:
            return self._chosen
        named = row.get(ENVIRONMENT_SERVER)
        if isinstance(named, str) and named in self._targets.environments:
            return named
        return self._targets.of_taskset(task["task_id"]["taskset"], None)


def resources_server(targets: Targets, environment: str, modes: Modes) -> tuple[str, ReverifyMode]:
    """Who verifies the rollouts of an environment server, and how. Raises UserError if nobody can."""
    name = targets.environments[environment].resources
    if name is None:
        raise UserError(f"{environment} names no resources server, so its rollouts cannot be verified again: choose another with --env")
    mode = modes.get(name, "unsupported")
    if mode not in get_args(ReverifyMode) or mode == "unsupported":
        raise UserError(
            f"{name} cannot verify without the episode (its reverify mode is {mode!r}): "
            f"its verdict rests on what the agent did in the session; run the tasks again with 'gym eval run'"
        )
    return name, cast("ReverifyMode", mode)
