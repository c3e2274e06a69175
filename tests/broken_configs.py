"""Broken configs, each with what `gym env validate` must say of it: tests/unit/config/broken.

A case is a YAML file, or a folder whose `config.yaml` it is and whose other files it needs. It begins with comments:

    # The mistake, in a sentence or two.
    # file: where it is placed, if not at the top; then it finds the folder tests/unit/config/manifested around it (manifests only)
    # run: further arguments (may be left out); with --manifest or --all it is not given as a --config
    # says: the line of one problem; one such comment for each, in their order

In `says` the case's own file is left out of the place, and `…` stands for any text.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "unit" / "config" / "broken"
_MANIFESTED = CASES.with_name("manifested")
PREPARED = (
    "benchmarks/swebench/data/swebench_verified.jsonl",
    "benchmarks/swebench/data/swebench_pro_benchmark.jsonl",
    "resources_servers/swe_gym/data/swe_gym_train.jsonl",
)
"""Rows of shipped data sets that every case finds prepared."""
_OWN = re.compile(r"\d+:\d+: ")


@dataclass(frozen=True)
class BrokenConfig:
    """One case."""

    name: str
    path: Path
    mistake: str
    file: str
    """Where it stands while it is checked."""
    arguments: tuple[str, ...]
    says: tuple[str, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rule of each problem."""
        return tuple(re.findall(r"^.*?(?:error|warning)\[([a-z-]+)\]", "\n".join(self.says), re.MULTILINE))

    @property
    def stops(self) -> bool:
        """Whether a run is refused; what is only doubtful stops nobody but the strict. Without any server there is nothing to run."""
        return "no-instances" in self.rules or any("error[" in line for line in self.says)

    def place(self, folder: Path) -> list[str]:
        """Copies the case into an empty folder; gives the arguments of `gym env validate` there."""
        if "/" in self.file:
            shutil.copytree(_MANIFESTED, folder, dirs_exist_ok=True)
            (folder / self.file).parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            shutil.copytree(self.path, folder, dirs_exist_ok=True)
        else:
            shutil.copy(self.path, folder / self.file)
        for rows in (folder / name for name in PREPARED):
            rows.parent.mkdir(parents=True, exist_ok=True)
            rows.touch()
        return [*([] if {"--manifest", "--all"} & {*self.arguments} else ["--config", self.file]), *self.arguments]

    def expected(self) -> list[re.Pattern[str]]:
        """A pattern for each line."""
        lines = [f"{self.file}:{line}" if _OWN.match(line) else line for line in self.says]
        return [re.compile(".*".join(re.escape(part) for part in line.split("…"))) for line in lines]


def read_cases() -> list[BrokenConfig]:
    """All cases, in the order of their numbers."""
    return [_read(path) for path in sorted(CASES.iterdir())]


def _read(path: Path) -> BrokenConfig:
    text = (path / "config.yaml" if path.is_dir() else path).read_text(encoding="utf-8")
    said: list[str] = []
    for line in text.splitlines():
        if not line.startswith("# "):
            break
        said.append(line.removeprefix("# "))
    run = next((line.removeprefix("run: ") for line in said if line.startswith("run: ")), "")
    file = next((line.removeprefix("file: ") for line in said if line.startswith("file: ")), path.name if path.is_file() else "config.yaml")
    says = [line.removeprefix("says: ") for line in said if line.startswith("says: ")]
    mistake = " ".join(line for line in said if not line.startswith(("file: ", "run: ", "says: ")))
    return BrokenConfig(path.stem, path, mistake, file, tuple(shlex.split(run)), tuple(says))
