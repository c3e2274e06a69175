"""What a harness needs in a sandbox: files out of npm packages, fetched once to this machine and known by content.

Invariant: a bundle that has its stamp is whole, and came out of archives with the pinned checksums. Once it is there nothing
is downloaded, neither here nor in a sandbox. Archives come through `npm`, with the user's own registry, proxy and credentials;
on a machine without it they can be laid into the cache by hand.
"""

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gym.config.errors import UserError

STAMP = ".gym-complete"
_FETCH_SECONDS = 900
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Piece:
    """One file of one package."""

    package: str
    version: str
    sha256: str
    """Of the archive, as the registry has it."""
    member: str
    """Which file of the archive."""
    name: str
    """What it is called in the bundle."""

    @property
    def archive(self) -> str:
        """The archive's file name, as `npm pack` gives it."""
        return f"{self.package.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


@dataclass(frozen=True)
class Bundle:
    """The files for one kind of machine."""

    title: str
    machine: str
    """As `uname -m` says it."""
    loader: str
    """The dynamic loader that the files ask for: an image without it cannot run them."""
    pieces: tuple[Piece, ...]

    @property
    def digest(self) -> str:
        """Names the bundle by its content."""
        said = "\n".join(f"{piece.sha256} {piece.member} {piece.name}" for piece in self.pieces)
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def ensure(bundle: Bundle, cache: Path, say: Callable[[str], None]) -> Path:
    """The folder with the bundle's files; made if it is not there. Raises UserError."""
    root = cache / "harness"
    folder = root / bundle.digest
    stamp = folder / STAMP
    if stamp.exists():
        return folder
    (root / "archives").mkdir(parents=True, exist_ok=True)
    with (root / f"{bundle.digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for piece in bundle.pieces:
                archive = root / "archives" / piece.archive
                if not archive.exists():
                    say(f"fetching {piece.package} {piece.version} for {bundle.title} (once)")
                    _fetch(piece, archive)
                _check(piece, archive)
                _extract(piece, archive, folder / piece.name)
            stamp.touch()
    return folder


def _fetch(piece: Piece, archive: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            f"{piece.package} {piece.version} is needed, and there is no npm on PATH to fetch it with: "
            f"install npm, or lay the package's archive at {archive}"
        )
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        command = [npm, "pack", f"{piece.package}@{piece.version}", "--pack-destination", folder]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"npm did not fetch {piece.package} {piece.version} within {_FETCH_SECONDS} s") from error
        fetched = Path(folder) / piece.archive
        if done.returncode or not fetched.exists():
            last = "\n    ".join(done.stderr.strip().splitlines()[-6:])
            raise UserError(f"npm could not fetch {piece.package} {piece.version} (or lay its archive at {archive}):\n    {last}")
        fetched.replace(archive)


def _check(piece: Piece, archive: Path) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != piece.sha256:
        archive.unlink()
        raise UserError(
            f"{archive} is not {piece.package} {piece.version}: its sha256 is {found}, pinned is {piece.sha256}; it was removed"
        )


def _extract(piece: Piece, archive: Path, target: Path) -> None:
    with tarfile.open(archive) as files:
        source = files.extractfile(piece.member)
        if source is None:
            raise UserError(f"{archive} has no file {piece.member}")
        with target.open("wb") as out:
            shutil.copyfileobj(source, out, _PIECE)
    target.chmod(0o755)
