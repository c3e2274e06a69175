"""Data sets as instances declare them: where their files are, and what is wrong with them.

Owns the checks of one data set; where its rows go is the business of `references`. Touches nothing
but the existence of files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gym.config.blocks import InstanceBlock
from gym.config.errors import Problem, closest, shown
from gym.config.licenses import license_hint
from gym.config.plan import DatasetBinding, Instance, Origin
from gym.config.roots import find_file
from gym.config.schema import AgentConfig, Dataset, ResourcesServerConfig
from gym.config.tree import KeyPath, dotted, origin_of


@dataclass(frozen=True)
class Declared:
    """A data set and where it is written."""

    binding: DatasetBinding
    block: InstanceBlock
    index: int

    def key(self, field: str = "") -> str:
        """The dotted path of one of its fields, or of the whole."""
        return dotted((*self.block.path, *self._path(field)))

    def origin(self, field: str = "") -> Origin:
        """Where one of its fields is written, or the whole."""
        return origin_of(self.block.block, self._path(field)) or self.block.origin

    def _path(self, field: str) -> KeyPath:
        return ("datasets", self.index, field) if field else ("datasets", self.index)


def declared(instance: InstanceBlock, built: Instance) -> list[Declared]:
    """The data sets of an instance."""
    if not isinstance(built.config, ResourcesServerConfig | AgentConfig):
        return []
    return [Declared(DatasetBinding(instance.name, dataset), instance, index) for index, dataset in enumerate(built.config.datasets)]


def locate_dataset(dataset: Dataset, roots: Sequence[Path], cwd: Path) -> Dataset:
    """The data set with absolute paths: where a root has the file, there; else below the working directory."""
    script = dataset.prepare_script
    return dataset.model_copy(
        update={
            "jsonl_fpath": find_file(dataset.jsonl_fpath, roots) or (cwd / dataset.jsonl_fpath),
            "prepare_script": None if script is None else (find_file(script, roots) or (cwd / script)),
        }
    )


def check_dataset(found: Declared, roots: Sequence[Path], cwd: Path) -> list[Problem]:
    """A data file or prepare script that is not there. Data that a script makes is only missed with a warning."""
    dataset = found.binding.dataset
    problems: list[Problem] = []

    def report(rule: str, field: str, message: str, hint: str, *, doubtful: bool = False) -> None:
        problems.append(Problem(rule, found.key(field), message, hint, found.origin(field), "warning" if doubtful else "error"))

    script = dataset.prepare_script
    script_is_there = script is not None and script.is_file()
    if script is not None and not script_is_there:
        report("file-missing", "prepare_script", f"there is no such script ({script})", path_hint(script, roots, cwd))
    doubt = license_hint(dataset.license) if dataset.license is not None else None
    if doubt is not None:
        report("unknown-license", "license", f"is not the name of a known licence ({shown(dataset.license)})", doubt, doubtful=True)
    if not dataset.jsonl_fpath.is_file():
        path = f"there is no such file ({dataset.jsonl_fpath})"
        if dataset.type == "example":
            hint = path_hint(
                dataset.jsonl_fpath, roots, cwd, "correct the path; example rows belong to the server and are committed with it"
            )
            report("file-missing", "jsonl_fpath", path, hint)
        elif script is None or script_is_there:
            hint = f"run {script} to make it" if script is not None else "put the data there, or name a prepare_script"
            report("data-not-prepared", "jsonl_fpath", path, hint, doubtful=True)
    return problems


def path_hint(path: Path, roots: Sequence[Path], cwd: Path, otherwise: str = "correct the path") -> str:
    """What to do about a file that is not there: the file of the same folder that was meant, where one is much like it."""
    within = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    folders = [folder for root in roots if (folder := (root / within).parent).is_dir()]
    near = closest(path.name, [child.name for folder in folders for child in folder.iterdir()], cutoff=0.6)
    return f"did you mean '{near}'?" if near is not None else otherwise
