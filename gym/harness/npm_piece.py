"""One file out of an npm package, as a part of a bundle.

Archives come through `npm`, with the user's own registry, proxy and credentials; on a machine without it they can be laid into
the cache by hand. Either way the pinned checksum decides.
"""

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gym.config.errors import UserError
from gym.harness.programs import check_disk, lines_that_matter, network_refused, run_program

_FETCH_SECONDS = 900
_CHUNK = 1024 * 1024


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
    def identity(self) -> str:
        """Names its content."""
        return f"{self.sha256} {self.member} {self.name}"

    @property
    def archive(self) -> str:
        """The archive's file name, as `npm pack` gives it."""
        return f"{self.package.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    def make(self, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        """Lay the file into `folder`; archives are kept below `root`."""
        archive = root / "archives" / self.archive
        archive.parent.mkdir(exist_ok=True)
        if not archive.exists():
            say(f"fetching {self.package} {self.version} (once)")
            self._fetch(archive)
        self._check(archive)
        self._extract(archive, folder / self.name)

    def _fetch(self, archive: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise UserError(
                f"{self.package} {self.version} is needed, and there is no npm on PATH to fetch it with: "
                f"install npm, or lay the package's archive at {archive}"
            )
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            command = [npm, "pack", f"{self.package}@{self.version}", "--pack-destination", folder]
            done = run_program(command, _FETCH_SECONDS, Path(folder))
            fetched = Path(folder) / self.archive
            if done.returncode or not fetched.exists():
                check_disk(done.stderr)
                lay = f"lay its archive at {archive}"
                if network_refused():
                    raise UserError(f"{self.package} {self.version} is not in the cache of npm, and the network is refused: {lay}")
                raise UserError(f"npm could not fetch {self.package} {self.version} (or {lay}):{lines_that_matter(done.stderr)}")
            fetched.replace(archive)

    def _check(self, archive: Path) -> None:
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            archive.unlink()
            raise UserError(
                f"{archive} is not {self.package} {self.version}: its sha256 is {found}, pinned is {self.sha256}; it was removed"
            )

    def _extract(self, archive: Path, target: Path) -> None:
        with tarfile.open(archive) as files:
            source = files.extractfile(self.member)
            if source is None:
                raise UserError(f"{archive} has no file {self.member}")
            with target.open("wb") as out:
                shutil.copyfileobj(source, out, _CHUNK)
        target.chmod(0o755)
