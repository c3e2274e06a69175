"""What a harness needs in a sandbox: a folder of files, made once on this machine and known by content, and one archive of it.

Invariant: a bundle that has its stamp is whole, and was made of what its parts pin. Once it is there nothing is downloaded,
neither here nor in a sandbox, and what its parts were made with (npm, uv, a Python) is not asked for any more.
Left out: how a part is made (`npm_piece`, `python_tree`), and how the archive gets into a sandbox (`placing`).
"""

import hashlib
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gym.harness.elf import Version, needed_glibc
from gym.harness.kept import STAMP, is_kept, keep

__all__ = ["STAMP", "Built", "Bundle", "Part", "at_hand", "ensure"]

_FORMAT = "2"
"""Of the folder and its archive; another one is another bundle."""
_COMPRESSION = 6


class Part(Protocol):
    """Some of a bundle's files."""

    @property
    def identity(self) -> str:
        """Names what will be made; no two things that differ have the same."""
        ...

    def make(self, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        """Lay the files into `folder`; `root` is there for what is worth keeping. Raises UserError."""
        ...


@dataclass(frozen=True)
class Bundle:
    """The files for one kind of machine."""

    title: str
    """The harness's name for people."""
    parts: tuple[Part, ...]
    machine: str = "x86_64"
    """As `uname -m` says it."""
    loader: str = "/lib64/ld-linux-x86-64.so.2"
    """The dynamic loader that the files ask for: an image without it cannot run them."""
    glibc: Version = (0, 0)
    """The least that is needed, where the files do not say it themselves: that of what they load later, say."""
    home: str | None = None
    """A folder of its own in sandboxes, mounted or copied to; None for those that harnesses share."""
    tools: tuple[str, ...] = ()
    """Programs that the image must have beside a shell."""

    @property
    def digest(self) -> str:
        """Names the bundle by its content."""
        said = "\n".join([_FORMAT, *(part.identity for part in self.parts)])
        return hashlib.sha256(said.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Built:
    """A bundle that is at hand."""

    bundle: Bundle
    folder: Path
    archive: Path
    """The folder's files, as `.tar.gz`."""
    glibc: Version
    """The oldest glibc that its files run on."""


def ensure(bundle: Bundle, cache: Path, say: Callable[[str], None]) -> Built:
    """The bundle in the cache, made if it is not there. Raises UserError."""
    folder, archive = _places(bundle, cache)

    def make() -> str:
        say(f"making the files of {bundle.title} for sandboxes (once)")
        folder.mkdir()
        for part in bundle.parts:
            part.make(folder, folder.parent, say)
        _pack(folder, archive)
        elf = (needed_glibc(path) for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return json.dumps({"glibc": max(elf, default=(0, 0))})

    said = keep(folder, f"the files of {bundle.title} for sandboxes", make, say, archive.exists)
    major, minor = json.loads(said)["glibc"]
    return Built(bundle, folder, archive, max((major, minor), bundle.glibc))


def at_hand(bundle: Bundle, cache: Path) -> bool:
    """Whether there is nothing to make."""
    folder, archive = _places(bundle, cache)
    return is_kept(folder, archive.exists)


def _places(bundle: Bundle, cache: Path) -> tuple[Path, Path]:
    """The folder, and its archive beside it."""
    root = cache / "harness"
    return root / bundle.digest, root / f"{bundle.digest}.tar.gz"


def _pack(folder: Path, archive: Path) -> None:
    def anyones(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        """Of no user of this machine, and for every user of the other."""
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
        return entry

    with tarfile.open(archive, "w:gz", compresslevel=_COMPRESSION) as files:
        files.add(folder, ".", filter=anyones)
