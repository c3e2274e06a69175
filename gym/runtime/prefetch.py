"""What a configuration's servers are made of, made beforehand: Python environments, and harnesses for sandboxes.

Invariant: it is made by the functions that a start calls, into the same cache; a second time there is nothing to do.
Left out: images of tasks, of which there are as many as rows, and data sets.
"""

import importlib
from collections.abc import Callable, Iterator

from gym.config.errors import UserError
from gym.config.packages import implementation_package
from gym.config.plan import Instance, Plan
from gym.harness.bundle import Bundle, ensure
from gym.harness.config import HarnessConfig
from gym.runtime.environments import cache_root, environment_python


def prefetch(plan: Plan, say: Callable[[str], None]) -> Iterator[str]:
    """Make it all; a line for each thing that is at hand. Raises UserError."""
    seen: set[str] = set()
    for instance in plan.instances.values():
        if instance.remote:
            continue
        if instance.requirements is not None:
            python = environment_python(instance, plan.settings, say)
            if python not in seen:
                yield f"{instance.implementation}: Python environment {python}"
            seen.add(python)
        bundle = _bundle(instance)
        if bundle is not None and bundle.digest not in seen:
            seen.add(bundle.digest)
            built = ensure(bundle, cache_root(plan.settings), say)
            yield f"{instance.implementation}: {bundle.title} for sandboxes {built.folder}"


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
