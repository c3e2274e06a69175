"""Whose sandbox it is: the labels that every object of ours carries, and the id it is known by.

Invariant: an id is made before anything is asked of a provider, and the labels alone say who owns
a sandbox and when it expires, so that somebody else can release it. Judging whether an owner is
still alive is in `owners`.
"""

import hashlib
import math
import os
import pwd
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

PREFIX = "nemo-gym"
MARK = f"{PREFIX}.sandbox"
RUN_ID = f"{PREFIX}.run-id"
INSTANCE = f"{PREFIX}.instance"
EPISODE_ID = f"{PREFIX}.episode-id"
SESSION_ID = f"{PREFIX}.session-id"
ROLE = f"{PREFIX}.role"
OWNER_HOST = f"{PREFIX}.owner-host"
OWNER_PID = f"{PREFIX}.owner-pid"
OWNER_BOOT_ID = f"{PREFIX}.owner-boot-id"
OWNER_STARTED = f"{PREFIX}.owner-started"
OWNER_SPACE = f"{PREFIX}.owner-space"
OWNER_USER = f"{PREFIX}.owner-user"
CREATED_AT = f"{PREFIX}.created-at"
EXPIRES_AT = f"{PREFIX}.expires-at"
METADATA = f"{PREFIX}.meta."

Role = Literal["task", "verifier", "check", "network"]
NETWORK: Role = "network"
"""The role of what is no sandbox, but a run's own network for them."""


def new_sandbox_id() -> str:
    """A fresh id, `nemo-gym-<32 hex digits>`."""
    return f"{PREFIX}-{secrets.token_hex(16)}"


def network_id(run_id: str) -> str:
    """The id of a run's own network at an engine: every process of the run knows it without being told."""
    return f"{PREFIX}-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


@cache
def boot_id() -> str:
    """The kernel's id of this boot; a pid means something only together with it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


@cache
def space() -> str:
    """Where pids of ours mean something: a digest of the machine's id, and the pid name space; parts that cannot be read are empty."""
    machine = namespace = ""
    try:
        machine = hashlib.sha256(Path("/etc/machine-id").read_bytes().strip()).hexdigest()[:12]
        namespace = str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")
    except OSError:
        pass
    return f"{machine}/{namespace}"


@cache
def user() -> str:
    """The user whose sandboxes are ours: `<uid>:<name>`."""
    uid = os.getuid()
    try:
        return f"{uid}:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"{uid}:"


def started_at(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None for one that has ended, "" where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except FileNotFoundError:
        return None
    except (OSError, IndexError):
        return ""


def owner_labels() -> dict[str, str]:
    """Who this process is, such that another one can tell later whether it still lives."""
    return {
        OWNER_USER: user(),
        OWNER_HOST: socket.gethostname(),
        OWNER_SPACE: space(),
        OWNER_BOOT_ID: boot_id(),
        OWNER_PID: str(os.getpid()),
        OWNER_STARTED: started_at(os.getpid()) or "",
    }


@dataclass(frozen=True)
class Ownership:
    """For whom a sandbox is made. The owning process is the one that calls `labels`."""

    run_id: str
    instance: str
    role: Role = "task"
    episode_id: str | None = None
    """The capture key of the episode."""
    session_id: str | None = None

    def labels(self, ttl_s: float, metadata: Mapping[str, str]) -> dict[str, str]:
        """All labels of a sandbox made now that lives at most `ttl_s` seconds; `expires-at` is in Unix seconds."""
        labels = {
            MARK: "1",
            RUN_ID: self.run_id,
            INSTANCE: self.instance,
            ROLE: self.role,
            EPISODE_ID: self.episode_id,
            SESSION_ID: self.session_id,
            **owner_labels(),
            **time_labels(ttl_s),
        }
        return {k: v for k, v in labels.items() if v is not None} | {METADATA + k: v for k, v in metadata.items()}


def time_labels(ttl_s: float) -> dict[str, str]:
    """When a sandbox whose time begins now was made and expires, in Unix seconds."""
    now = time.time()
    return {CREATED_AT: str(math.floor(now)), EXPIRES_AT: str(math.ceil(now + ttl_s))}
