"""Control groups of one sandbox: limits on memory and CPU for all its processes together.

Invariant: a limit counts as set only once the kernel has taken it. Needs root and a hierarchy that
can be written, version 1 or 2; where there is none, `available` is empty and the provider declares
no such limits, so that a spec that asks for them is refused.
"""

import contextlib
import os
from pathlib import Path

from gym.sandbox.spec import SandboxError, SandboxResources

_PERIOD_US = 100_000
_MIB = 1024 * 1024
_PARENT = "nemo-gym"
_CONTROLLERS = {"memory_mib": "memory", "cpu": "cpu"}


class Cgroups:
    """The control groups of this host, below `mount`."""

    def __init__(self, mount: Path = Path("/sys/fs/cgroup")) -> None:
        self._mount = mount
        self._unified = (mount / "cgroup.controllers").exists()

    def available(self) -> frozenset[str]:
        """The fields of `SandboxResources` that can be limited here."""
        if os.geteuid() != 0:
            return frozenset()
        if self._unified:
            offered = (self._mount / "cgroup.controllers").read_text().split()
            try:
                self._enable(offered)
            except OSError:
                return frozenset()
            return frozenset(name for name, controller in _CONTROLLERS.items() if controller in offered)
        return frozenset(name for name, controller in _CONTROLLERS.items() if os.access(self._mount / controller / "cgroup.procs", os.W_OK))

    def make(self, sandbox_id: str, limits: SandboxResources) -> list[Path]:
        """Groups with these limits for a sandbox; SandboxError, and none left, if the kernel refuses."""
        made: list[Path] = []
        try:
            for name, controller in _CONTROLLERS.items():
                value = getattr(limits, name)
                if value is None:
                    continue
                group = (self._mount if self._unified else self._mount / controller) / _PARENT / sandbox_id
                if group not in made:
                    group.mkdir(parents=True)
                    made.append(group)
                for file, text, required in self._settings(name, value):
                    with contextlib.nullcontext() if required else contextlib.suppress(OSError):
                        (group / file).write_text(text)
        except OSError as error:
            for group in made:
                with contextlib.suppress(OSError):
                    group.rmdir()
            raise SandboxError(f"the limits of sandbox {sandbox_id} could not be set: {error}") from error
        return made

    def oom_kills(self, sandbox_id: str) -> int:
        """How often the memory limit ended a process of the sandbox; 0 where it has no limit, or its group is gone."""
        group = (self._mount if self._unified else self._mount / "memory") / _PARENT / sandbox_id
        try:
            lines = (group / ("memory.events" if self._unified else "memory.oom_control")).read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def _settings(self, name: str, value: float) -> list[tuple[str, str, bool]]:
        """File, text, and whether it must succeed: the limit on swap exists only where swap is accounted for."""
        if name == "cpu":
            quota = str(int(value * _PERIOD_US))
            if self._unified:
                return [("cpu.max", f"{quota} {_PERIOD_US}", True)]
            return [("cpu.cfs_period_us", str(_PERIOD_US), True), ("cpu.cfs_quota_us", quota, True)]
        size = str(int(value) * _MIB)
        if self._unified:
            return [("memory.max", size, True), ("memory.swap.max", "0", False)]
        return [("memory.limit_in_bytes", size, True), ("memory.memsw.limit_in_bytes", size, False)]

    def _enable(self, offered: list[str]) -> None:
        parent = self._mount / _PARENT
        parent.mkdir(exist_ok=True)
        wanted = " ".join(f"+{controller}" for controller in _CONTROLLERS.values() if controller in offered)
        for level in (self._mount, parent):
            if not set(wanted.replace("+", "").split()) <= set((level / "cgroup.subtree_control").read_text().split()):
                (level / "cgroup.subtree_control").write_text(wanted)
