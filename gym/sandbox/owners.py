"""Whether the owner of a sandbox still lives: the decision that a reaper acts on, and nothing else.

Pure: from labels, from who we are, and from the heartbeats of runs that we can see. Invariant: a pid
decides only where it means something (same host, boot and pid name space); in doubt the owner counts
as one that cannot be judged, and its sandbox is left alone.
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gym.sandbox.leases import FRESH_SECONDS
from gym.sandbox.ownership import (
    EXPIRES_AT,
    MARK,
    NETWORK,
    OWNER_BOOT_ID,
    OWNER_HOST,
    OWNER_PID,
    OWNER_SPACE,
    OWNER_STARTED,
    OWNER_USER,
    ROLE,
    RUN_ID,
    boot_id,
    space,
    started_at,
    user,
)

EXPIRY_GRACE_SECONDS = 900.0
"""A sandbox counts down from its start, and is labelled when it is asked for: an engine may take so long in between."""


class Owner(StrEnum):
    """What is known of a sandbox's owner."""

    ALIVE = "alive"
    ORPHANED = "orphaned"
    EXPIRED = "expired"
    """The sandbox has outlived its time: it should have ended itself, whoever owns it."""
    UNKNOWN = "unknown"
    """Ours, and its owner cannot be judged from here."""
    FOREIGN = "foreign"
    """Another user's, or not labelled as ours are."""


@dataclass(frozen=True)
class Judgement:
    """An owner's state, and why."""

    owner: Owner
    why: str

    @property
    def releasable(self) -> bool:
        """Whether a reaper may end the sandbox without being told to."""
        return self.owner in (Owner.ORPHANED, Owner.EXPIRED)


@dataclass(frozen=True)
class Here:
    """Who judges, and what can be seen from here. `beats` are the last signs of life of runs (Unix seconds), by run id."""

    user: str = field(default_factory=user)
    host: str = field(default_factory=socket.gethostname)
    space: str = field(default_factory=space)
    boot_id: str = field(default_factory=boot_id)
    started_at: Callable[[int], str | None] = started_at
    beats: Mapping[str, float] = field(default_factory=dict[str, float])
    now: float = field(default_factory=time.time)


def judge(labels: Mapping[str, str], here: Here) -> Judgement:
    """What is known of the owner of the sandbox that carries `labels`."""
    if labels.get(MARK) != "1" or not labels.get(RUN_ID):
        return Judgement(Owner.FOREIGN, "it does not carry our labels")
    owner = labels.get(OWNER_USER)
    if owner != here.user:
        return Judgement(Owner.FOREIGN, f"it belongs to user {owner}" if owner else "its user is not known")
    expires = _number(labels.get(EXPIRES_AT))
    over = expires is not None and expires + EXPIRY_GRACE_SECONDS < here.now
    expired = Judgement(Owner.EXPIRED, "its time is over")
    if over and labels.get(ROLE) != NETWORK:
        return expired
    found = _by_process(labels, here) or _by_heartbeat(labels, here)
    # A run's network lives as long as the run, however long that is: its time counts only where nobody can tell.
    return expired if over and found.owner is Owner.UNKNOWN else found


def _by_process(labels: Mapping[str, str], here: Here) -> Judgement | None:
    """The judgement where pids, or boots, of the owner's host mean something here."""
    machine, _, namespace = labels.get(OWNER_SPACE, "").partition("/")
    our_machine, _, our_namespace = here.space.partition("/")
    if labels.get(OWNER_HOST) != here.host or not machine or machine != our_machine:
        return None
    boot, pid = labels.get(OWNER_BOOT_ID, ""), _number(labels.get(OWNER_PID))
    if "unknown" in (boot, here.boot_id) or not boot:
        return None
    if boot != here.boot_id:
        return Judgement(Owner.ORPHANED, "its machine was started anew since")
    if pid is None or not namespace or namespace != our_namespace:
        return None
    started = here.started_at(int(pid))
    if started is None:
        return Judgement(Owner.ORPHANED, f"process {int(pid)} has ended")
    known = labels.get(OWNER_STARTED)
    if known and started and known != started:
        return Judgement(Owner.ORPHANED, f"process {int(pid)} has ended, and another has its number")
    return Judgement(Owner.ALIVE, f"process {int(pid)}")


def _by_heartbeat(labels: Mapping[str, str], here: Here) -> Judgement:
    host, run_id = labels.get(OWNER_HOST) or "an unknown host", labels[RUN_ID]
    beat = here.beats.get(run_id)
    if beat is None:
        return Judgement(Owner.UNKNOWN, f"it is owned on {host}, and no journal of run {run_id} is seen here")
    age = here.now - beat
    if age <= FRESH_SECONDS:
        return Judgement(Owner.ALIVE, f"run {run_id} on {host} gave a sign of life")
    return Judgement(Owner.ORPHANED, f"run {run_id} on {host} gave no sign of life for {age:.0f} s")


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
