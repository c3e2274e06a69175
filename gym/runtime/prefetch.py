"""What a configuration's servers are made of, made beforehand: Python environments, and harnesses for sandboxes.

Invariant: it is made by the functions that a start calls, into the same cache; a second time there is nothing to do. What cannot be
made does not keep the rest from being made, and all of it is told.
Left out: images of tasks, of which there are as many as rows, and data sets.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gym.config.errors import UserError, listed
from gym.config.packages import implementation_package
from gym.config.plan import Instance, Plan
from gym.harness.bundle import Bundle, at_hand, ensure
from gym.harness.config import HarnessConfig
from gym.runtime.environments import Environment, cache_root, environment_of


@dataclass
class _Need:
    """One thing, and the instances that need it."""

    thing: Environment | Bundle
    instances: list[Instance] = field(default_factory=list[Instance])

    @property
    def names(self) -> str:
        return listed([instance.name for instance in self.instances])

    @property
    def implementations(self) -> str:
        return listed(sorted({instance.implementation for instance in self.instances}))


def prefetch(plan: Plan, say: Callable[[str], None]) -> Iterator[str]:
    """Make it all; a line for each thing that is at hand. Raises UserError with everything that could not be made."""
    cache = cache_root(plan.settings)
    needs: dict[str, _Need] = {}
    failed: list[str] = []
    for instance in plan.instances.values():
        if not instance.remote:
            try:
                for key, thing in _needed(instance, plan, say):
                    needs.setdefault(key, _Need(thing)).instances.append(instance)
            except UserError as error:
                failed.append(str(error))
    idle = True
    for need in needs.values():
        thing = need.thing
        idle = idle and (thing.is_there if isinstance(thing, Environment) else at_hand(thing, cache))
        try:
            if isinstance(thing, Environment):
                yield f"{need.implementations}: Python environment {thing.ensure(need.names, say)}"
            else:
                yield f"{need.implementations}: {thing.title} for sandboxes {_ensure(thing, need, plan, say)}"
        except UserError as error:
            failed.append(str(error))
    if failed:
        raise UserError("\n".join(f"error: {reason}" for reason in failed))
    if idle:
        say("everything is there: nothing to do" if needs else "these servers need nothing that has to be made")


def _needed(instance: Instance, plan: Plan, say: Callable[[str], None]) -> Iterator[tuple[str, Environment | Bundle]]:
    environment = environment_of(instance, plan.settings, say)
    if environment is not None:
        yield str(environment.folder), environment
    bundle = _bundle(instance)
    if bundle is not None:
        yield bundle.digest, bundle


def _ensure(bundle: Bundle, need: _Need, plan: Plan, say: Callable[[str], None]) -> str:
    try:
        return str(ensure(bundle, cache_root(plan.settings), say).folder)
    except UserError as error:
        raise UserError(f"{bundle.title} for {need.names}: {error}") from error


def _bundle(instance: Instance) -> Bundle | None:
    """What the instance's harness needs in a sandbox: `BUNDLE` of the `adapter.py` beside its app, where there is one."""
    if not isinstance(instance.config, HarnessConfig) or not instance.config.in_sandbox:
        return None
    if not (instance.directory / "adapter.py").is_file():
        return None
    package = implementation_package(instance.kind, instance.implementation, instance.directory)
    try:
        found = getattr(importlib.import_module(f"{package}.adapter"), "BUNDLE", None)
    except ImportError as error:
        raise UserError(f"{instance.name}: the adapter of {instance.implementation} cannot be imported: {error}") from error
    return found if isinstance(found, Bundle) else None
