"""Files of an implementation, as a part of a bundle: beside the packages, so that they are imported by the names that they have here."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sources:
    """`files` below `root`, laid to the same places below `target` of the bundle. It comes before a `PythonTree`, which compiles them."""

    root: Path
    files: tuple[str, ...]
    target: str

    @property
    def identity(self) -> str:
        """Names their content."""
        content = hashlib.sha256()
        for name in self.files:
            content.update(f"{name}\0".encode() + hashlib.sha256((self.root / name).read_bytes()).digest())
        return f"sources {self.target} {content.hexdigest()[:16]}"

    def make(self, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        """Copy them."""
        for name in self.files:
            path = folder / self.target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, path)
