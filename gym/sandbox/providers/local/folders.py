"""The folders of local sandboxes: made, found by labels, and ended, from any process of the same user.

`<root>/<sandbox id>/` is one sandbox; everything about it is in there, so whoever can list the root
can find and end what is left over. Invariant: a folder appears complete with its labels and its
lock held, or not at all. What is in a folder is told in `keeper`.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gym.sandbox.ownership import MARK
from gym.sandbox.providers.local.keeper import is_locked, remove
from gym.sandbox.spec import SandboxError, SandboxRecord, SandboxSpecError, SandboxStatus

_ID = re.compile(r"nemo-gym-[0-9a-f]{8,64}")
_POLITE_S = 5.0
_END_BOUND_S = 60.0
_STALE_S = 600.0


def is_sandbox_id(name: str) -> bool:
    """Whether `name` can be the id of a sandbox."""
    return _ID.fullmatch(name) is not None


def default_root() -> Path:
    """`sandboxes` in $GYM_STATE_DIR, else in the user's XDG state folder."""
    own, xdg = os.environ.get("GYM_STATE_DIR"), os.environ.get("XDG_STATE_HOME")
    state = Path(own) if own else Path(xdg) / "gym" if xdg else Path.home() / ".local" / "state" / "gym"
    return state.absolute() / "sandboxes"


def open_root(root: Path) -> None:
    """Make `root` if need be; SandboxError unless it is ours alone."""
    try:
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SandboxError(f"the folder of local sandboxes {str(root)!r} cannot be made: {error.strerror}; set GYM_STATE_DIR") from error
    if why := not_private(root):
        raise SandboxError(f"the folder of local sandboxes {str(root)!r} {why}: make it private (chmod 700), or set another `root`")


def not_private(root: Path) -> str | None:
    """What makes others able to meddle in `root`, if anything does."""
    try:
        found = root.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be entered by other users" if found.st_mode & 0o077 else None


def make(root: Path, sandbox_id: str, labels: Mapping[str, str], tops: list[str], uid: int) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock; SandboxSpecError if the id is taken. `uid` owns the tree, 0 is us."""
    open_root(root)
    for left in root.glob(".making-*"):  # somebody was killed within the next few lines
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left)
    making = root / f".making-{secrets.token_hex(8)}"
    folder = root / sandbox_id
    making.mkdir(mode=0o700)
    try:
        (making / "labels.json").write_text(json.dumps(dict(labels)))
        lock = os.open(making / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for top in tops:
                path = making / "tree" / top
                path.mkdir(parents=True)
                path.chmod(0o1777 if top == "tmp" else 0o755)
                if uid:
                    os.chown(path, uid, uid)
            making.rename(folder)
        except BaseException:
            os.close(lock)
            raise
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, OSError):
            if folder.exists():
                raise SandboxSpecError(f"sandbox id {sandbox_id} is already in use") from error
            raise SandboxError(f"the folder of sandbox {sandbox_id} could not be made: {error}") from error
        raise
    return folder, lock


def labels_of(folder: Path) -> dict[str, str] | None:
    """The labels of a sandbox; None if there is none of ours in `folder`."""
    try:
        labels = json.loads((folder / "labels.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(labels, dict):
        return None
    found = cast("dict[str, Any]", labels)
    return {key: str(value) for key, value in found.items()} if found.get(MARK) == "1" else None


def status(folder: Path) -> SandboxStatus:
    """Whether the sandbox in `folder` lives."""
    if not is_locked(folder):
        return SandboxStatus.STOPPED
    return SandboxStatus.RUNNING if (folder / "ready").exists() else SandboxStatus.STARTING


def find(root: Path, wanted: Mapping[str, str]) -> list[SandboxRecord]:
    """All sandboxes whose labels say so, dead ones included."""
    records: list[SandboxRecord] = []
    for folder in sorted(root.glob("nemo-gym-*")):
        labels = labels_of(folder)
        if labels is not None and wanted.items() <= labels.items():
            records.append(SandboxRecord(folder.name, status(folder), labels))
    return records


def end(folder: Path) -> None:
    """End the sandbox in `folder`, and remove all of it. None there is well; SandboxError if it will not go."""
    began = time.monotonic()
    asked = False
    while is_locked(folder):
        waited = time.monotonic() - began
        if waited > _END_BOUND_S:
            raise SandboxError(f"sandbox {folder.name} did not end within {_END_BOUND_S:g} s", "session_release_failed")
        if not asked or waited > _POLITE_S:
            asked = _signal(folder, signal.SIGKILL if waited > _POLITE_S else signal.SIGTERM) or asked
        time.sleep(0.005)
    if folder.exists():
        try:
            remove(folder)
        except OSError as error:
            raise SandboxError(f"what is left of sandbox {folder.name} could not be removed: {error}", "session_release_failed") from error


def _signal(folder: Path, number: signal.Signals) -> bool:
    """Signal the keeper, and nobody else who has its pid by now: while the lock is held, the keeper lives."""
    try:
        keeper = os.pidfd_open(int((folder / "pid").read_text()))
    except (OSError, ValueError):
        return False  # it has not come so far, or has ended
    try:
        if is_locked(folder):
            signal.pidfd_send_signal(keeper, number)
            return True
    except ProcessLookupError:
        pass
    finally:
        os.close(keeper)
    return False
