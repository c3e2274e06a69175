"""Broken configs, each with what `gym env validate` must say of it: tests/unit/config/broken.

A case is a YAML file, or a folder whose `config.yaml` it is and whose other files it needs. It begins with comments:

    # The mistake, in a sentence or two.
    # run: further arguments (may be left out)
    # says: the line of one problem; one such comment for each, in their order

In `says` the case's own file is left out of the place, and `…` stands for any text.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "unit" / "config" / "broken"
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
        if self.path.is_dir():
            shutil.copytree(self.path, folder, dirs_exist_ok=True)
        else:
            shutil.copy(self.path, folder)
        for rows in (folder / name for name in PREPARED):
            rows.parent.mkdir(parents=True, exist_ok=True)
            rows.touch()
        return ["--config", self._file, *self.arguments]

    def expected(self) -> list[re.Pattern[str]]:
        """A pattern for each line."""
        lines = [f"{self._file}:{line}" if _OWN.match(line) else line for line in self.says]
        return [re.compile(".*".join(re.escape(part) for part in line.split("…"))) for line in lines]

    @property
    def _file(self) -> str:
        return "config.yaml" if self.path.is_dir() else self.path.name


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
    says = [line.removeprefix("says: ") for line in said if line.startswith("says: ")]
    mistake = " ".join(line for line in said if not line.startswith(("run: ", "says: ")))
    return BrokenConfig(path.stem, path, mistake, tuple(shlex.split(run)), tuple(says))
