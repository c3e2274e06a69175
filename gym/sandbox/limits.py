"""Limits against what a host has: one above it is clamped, said once and recorded; a floor above it is refused."""

import logging
from dataclasses import dataclass

from gym.sandbox.spec import SandboxResources, SandboxSpec, SandboxSpecError

log = logging.getLogger(__name__)

_said: set[str] = set()


@dataclass(frozen=True)
class Host:
    """What a host has; 0 is: not known."""

    cpu: float
    memory_mib: int


def clamp(spec: SandboxSpec, host: Host) -> tuple[SandboxResources, dict[str, float]]:
    """The limits that the host can give, and what was asked where that is more; SandboxSpecError for a floor above the host."""
    limits = spec.resources.model_copy()
    clamped: dict[str, float] = {}
    for name, has in (("cpu", host.cpu), ("memory_mib", host.memory_mib)):
        floor, limit = getattr(spec.resource_requests, name), getattr(limits, name)
        if not has:
            continue
        if floor is not None and floor > has:
            raise SandboxSpecError(f"the sandbox needs {name} {floor:g}, and the host has {has:g}: use a larger host or a smaller task")
        if limit is not None and limit > has:
            clamped[name] = limit
            setattr(limits, name, has)
            notice = f"limit {name} {limit:g} is more than the host has; sandboxes get {has:g}"
            if notice not in _said:
                _said.add(notice)
                log.warning("%s", notice)
    return limits, clamped
