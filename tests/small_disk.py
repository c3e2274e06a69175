"""A small file system of a test's own, to be filled. Mounting one needs root."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


def why_no_disk() -> str | None:
    """Why no file system can be mounted here; None if it can."""
    return None if os.geteuid() == 0 else "mounting a small file system needs root"


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[None]:
    """Lay an empty file system over a folder, whose own content is hidden meanwhile. Raises OSError if that is not possible."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        raise OSError(errno.EPERM, f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until there is no room; return the file that takes it."""
    path = folder / ".takes-all-room"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))
    return path
