"""A folder that is made once and kept: with a lock beside it, and a stamp in it that is written last.

Invariant: a folder with its stamp is whole. One without is the rest of a making that was cut short; it is removed and made anew.
Who comes while another process makes it waits. Once it is there nothing is written any more, so that it may be read-only then.
"""

import contextlib
import errno
import fcntl
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

from gym.config.errors import UserError

STAMP = ".gym-complete"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def keep(folder: Path, what: str, make: Callable[[], str], say: Callable[[str], None], usable: Callable[[], bool] = lambda: True) -> str:
    """What the stamp of `folder` says; if it is not there, or not `usable`, it is made. Raises UserError.

    `make` fills the folder's path and returns what the stamp is to say.
    """
    if not is_kept(folder, usable):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_name(f"{folder.name}.lock"), what, say) as waited:
                if not is_kept(folder, usable):
                    _make(folder, what, make, say)
                elif waited:
                    say(f"{what}: the other process has made it")
        except OSError as error:
            raise _unwritable(folder, what, error) from error
    return (folder / STAMP).read_text()


def is_kept(folder: Path, usable: Callable[[], bool] = lambda: True) -> bool:
    """Whether it is there, whole."""
    return (folder / STAMP).exists() and usable()


def _make(folder: Path, what: str, make: Callable[[], str], say: Callable[[str], None]) -> None:
    if folder.exists():
        say(f"{what}: what is there is not whole, and is made anew")
        (folder / STAMP).unlink(missing_ok=True)
        shutil.rmtree(folder)
    said = make()
    fresh = folder / f"{STAMP}.part"
    fresh.write_text(said)
    fresh.replace(folder / STAMP)


@contextlib.contextmanager
def _locked(path: Path, what: str, say: Callable[[str], None]) -> Generator[bool]:
    """Hold the lock; yields whether it had to be waited for. It goes with the process, however that ends."""
    with path.open("w") as file:
        waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            say(f"{what}: another process is making it; waiting for that")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield waited


def _unwritable(folder: Path, what: str, error: OSError) -> UserError:
    where = Path(error.filename or folder)
    todo = "free some space there" if error.errno in _NO_ROOM else "let it be written"
    if where.is_relative_to(folder.parent) or folder.is_relative_to(where):
        todo += ", or name another cache folder (cache_dir=DIR, or GYM_CACHE_DIR)"
    return UserError(f"{what} cannot be made: {where}: {(error.strerror or str(error)).lower()} — {todo}")
