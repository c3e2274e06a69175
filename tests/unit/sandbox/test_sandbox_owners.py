"""Whose sandbox it is, and whether its owner lives: one line a case."""

import os
import socket
from collections.abc import Mapping

import pytest

from gym.sandbox.leases import FRESH_SECONDS
from gym.sandbox.owners import EXPIRY_GRACE_SECONDS, Here, Owner, judge
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
    Ownership,
    owner_labels,
    started_at,
)

NOW = 1_000_000.0
BASE = {
    MARK: "1",
    RUN_ID: "run",
    OWNER_USER: "1000:me",
    OWNER_HOST: "here",
    OWNER_SPACE: "machine/77",
    OWNER_BOOT_ID: "boot",
    OWNER_PID: "10",
    OWNER_STARTED: "555",
    EXPIRES_AT: str(NOW + 60),
}
PROCESSES = {10: "555", 11: "777"}


def here(beats: Mapping[str, float] | None = None) -> Here:
    return Here("1000:me", "here", "machine/77", "boot", PROCESSES.get, beats or {}, NOW)


CASES: list[tuple[str, dict[str, str | None], dict[str, float], Owner]] = [
    ("a live process", {}, {}, Owner.ALIVE),
    ("a dead process", {OWNER_PID: "12"}, {}, Owner.ORPHANED),
    ("its number belongs to another now", {OWNER_PID: "11"}, {}, Owner.ORPHANED),
    ("a process whose start is not known", {OWNER_STARTED: None}, {}, Owner.ALIVE),
    ("a dead process of a run that lives", {OWNER_PID: "12"}, {"run": NOW}, Owner.ORPHANED),
    ("before this boot", {OWNER_BOOT_ID: "earlier"}, {}, Owner.ORPHANED),
    ("a boot that is not known", {OWNER_BOOT_ID: "unknown", OWNER_PID: "12"}, {}, Owner.UNKNOWN),
    ("another host", {OWNER_HOST: "there"}, {}, Owner.UNKNOWN),
    ("another host, whose pid is free here", {OWNER_HOST: "there", OWNER_PID: "12"}, {}, Owner.UNKNOWN),
    ("another host, with a sign of life", {OWNER_HOST: "there"}, {"run": NOW - FRESH_SECONDS}, Owner.ALIVE),
    ("another host, silent", {OWNER_HOST: "there"}, {"run": NOW - FRESH_SECONDS - 1}, Owner.ORPHANED),
    ("another host, and another run's sign of life", {OWNER_HOST: "there"}, {"other": NOW}, Owner.UNKNOWN),
    ("a namesake of this host", {OWNER_SPACE: "other/77", OWNER_BOOT_ID: "other"}, {}, Owner.UNKNOWN),
    ("a container on this host", {OWNER_SPACE: "machine/88", OWNER_PID: "12"}, {}, Owner.UNKNOWN),
    ("no name space", {OWNER_SPACE: None, OWNER_PID: "12"}, {}, Owner.UNKNOWN),
    ("no host", {OWNER_HOST: None, OWNER_PID: "12"}, {}, Owner.UNKNOWN),
    ("a pid that is none", {OWNER_PID: "x"}, {}, Owner.UNKNOWN),
    ("expired, and alive", {EXPIRES_AT: str(NOW - EXPIRY_GRACE_SECONDS - 1)}, {}, Owner.EXPIRED),
    ("expired elsewhere", {EXPIRES_AT: str(NOW - EXPIRY_GRACE_SECONDS - 1), OWNER_HOST: "there"}, {}, Owner.EXPIRED),
    ("about to end itself", {EXPIRES_AT: str(NOW - 1)}, {}, Owner.ALIVE),
    ("an expiry that is none", {EXPIRES_AT: "soon"}, {}, Owner.ALIVE),
    ("another user's, dead", {OWNER_USER: "1001:you", OWNER_PID: "12"}, {}, Owner.FOREIGN),
    ("another user's, expired", {OWNER_USER: "1001:you", EXPIRES_AT: "1"}, {}, Owner.FOREIGN),
    ("a namesake's with another number", {OWNER_USER: "1001:me", OWNER_PID: "12"}, {}, Owner.FOREIGN),
    ("nobody's", {OWNER_USER: None, OWNER_PID: "12"}, {}, Owner.FOREIGN),
    ("not marked", {MARK: None, OWNER_PID: "12"}, {}, Owner.FOREIGN),
    ("marked otherwise", {MARK: "2", OWNER_PID: "12"}, {}, Owner.FOREIGN),
    ("of no run", {RUN_ID: None, OWNER_PID: "12"}, {}, Owner.FOREIGN),
]


@pytest.mark.parametrize(("labels", "beats", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_decision(labels: dict[str, str | None], beats: dict[str, float], expected: Owner) -> None:
    merged = {name: value for name, value in {**BASE, **labels}.items() if value is not None}
    judged = judge(merged, here(beats))
    assert judged.owner is expected, judged
    assert judged.releasable is (expected in (Owner.ORPHANED, Owner.EXPIRED))
    assert judged.why


def test_our_own_labels_say_that_we_live() -> None:
    labels = Ownership("run", "box").labels(60, {})
    assert labels[OWNER_HOST] == socket.gethostname()
    assert judge(labels, Here()).owner is Owner.ALIVE
    assert judge({**labels, OWNER_STARTED: "1"}, Here()).owner is Owner.ORPHANED
    assert owner_labels().items() <= labels.items()


def test_a_child_that_has_ended_and_is_not_yet_reaped_is_dead() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert started_at(pid) is None
    os.waitpid(pid, 0)
    assert started_at(pid) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, Owner.ALIVE), ({OWNER_PID: "12"}, Owner.ORPHANED), ({OWNER_HOST: "there"}, Owner.EXPIRED)],
)
def test_the_time_of_a_network_counts_only_where_its_owner_cannot_be_judged(changes: dict[str, str], expected: Owner) -> None:
    """A run may live longer than any time that its network was given at the start."""
    over = {EXPIRES_AT: str(NOW - EXPIRY_GRACE_SECONDS - 1)}
    assert judge({**BASE, **over, **changes, ROLE: NETWORK}, here()).owner is expected
    assert judge({**BASE, **over, **changes}, here()).owner is Owner.EXPIRED
