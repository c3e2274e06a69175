"""`gym env test`: what one environment, benchmark or agent says of itself, its example rows, and its own tests.

Owns which folders belong to a name. Tests run with pytest in this Python, as the package's own do;
a server with requirements is reached by them as by anyone, by starting it.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym.config import Problem, UserError
from gym.config.compose import display_path
from gym.config.errors import did_you_mean
from gym.config.plan import Origin, Plan
from gym.config.roots import EXTRA_ROOTS
from gym.config.schema import KINDS
from gym.manifests.check import check_manifest
from gym.manifests.composition import examine_offline
from gym.manifests.places import RECIPES, overlays
from gym.tasks.materialize import TaskError, check_materialized, is_materialized, materialize_task
from gym.tasks.rows import RowProblem, TaskFileError, read_rows
from gym.tasks.schema import SchemaError, TaskSchema, load_schema


@dataclass(frozen=True)
class Trial:
    """The folders of one name, below one root."""

    root: Path
    folders: tuple[Path, ...]

    def check(self, cwd: Path) -> tuple[list[Problem], int]:
        """What is wrong with its configs, manifests and rows; and how many rows were looked at."""
        problems: list[Problem] = []
        rows = 0
        for overlay in overlays([self.root]):
            if not any(overlay.path.is_relative_to(folder) for folder in self.folders):
                continue
            examined = None
            if overlay.manifest.is_file():
                checked = check_manifest(overlay.manifest, cwd)
                problems += [*checked.problems, *checked.stale]
                examined = checked.examined
            if examined is None:
                examined = examine_offline(overlay)
                problems += examined.problems
            if examined.plan is not None:
                found = list(_rows(examined.plan, cwd))
                rows += len(found)
                problems += [problem for problem in found if problem is not None]
        return list(dict.fromkeys(problems)), rows

    def test_files(self) -> list[Path]:
        """Its own tests."""
        return sorted(path for folder in self.folders for path in folder.glob("tests/**/test_*.py"))

    def run_tests(self, arguments: Sequence[str]) -> int:
        """Run its tests; returns pytest's exit code. Raises UserError if there are none, or no pytest."""
        files = self.test_files()
        if not files:
            raise UserError(f"there are no tests in {', '.join(str(folder / 'tests') for folder in self.folders)}: add a test_*.py")
        if importlib.util.find_spec("pytest") is None:
            raise UserError(f"the tests need pytest, which this Python does not have: {sys.executable} -m pip install pytest")
        roots = os.pathsep.join(filter(None, [str(self.root), os.environ.get(EXTRA_ROOTS)]))
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "pytest", "--import-mode=importlib", *arguments, *map(str, files)]
        return subprocess.run(command, cwd=self.root, env={**os.environ, EXTRA_ROOTS: roots, "PYTHONPATH": path}, check=False).returncode


def find_trial(name: str, roots: Sequence[Path]) -> Trial:
    """The folders that `name` stands for: an implementation's, a benchmark's, or those of an entry of `gym env list`. Raises UserError."""
    known: set[str] = set()
    for root in roots:
        places = [root / kind for kind in (*KINDS, *RECIPES)]
        folders = tuple(place / name for place in places if (place / name).is_dir())
        for overlay in overlays([root]):
            if name in (overlay.name, str(overlay.relative)):
                folders = folders or (root.joinpath(*overlay.relative.parts[:2]),)
        if folders and all(part not in ("", ".", "..") for part in name.split("/")):
            return Trial(root, folders)
        known.update(child.name for place in places if place.is_dir() for child in place.iterdir() if child.is_dir())
    raise UserError(f"there is nothing called {name!r} to test — {did_you_mean(name, known, otherwise='see gym env list')}")


def _rows(plan: Plan, cwd: Path) -> Iterator[Problem | None]:
    """One for each row of each data set that is there: None if it is a task that its server takes."""
    for binding in plan.datasets:
        dataset = binding.dataset
        if not dataset.jsonl_fpath.is_file():
            continue
        taskset = dataset.taskset or dataset.name
        route = plan.routes.get(taskset)
        server = plan.instances.get(route.resources or "") if route is not None else None
        shown = display_path(dataset.jsonl_fpath, cwd)
        try:
            schema = load_schema(server.directory) if server is not None else None
            for row in read_rows(dataset.jsonl_fpath):
                message = row.message if isinstance(row, RowProblem) else _wrong(row.value, taskset, schema)
                origin = Origin(shown, row.line, 1)
                yield None if message is None else Problem("row", "", message, "correct the row, or the schema", origin)
        except (TaskFileError, SchemaError) as error:
            yield Problem("row", "", str(error), "", Origin(shown))


def _wrong(row: dict[str, object], taskset: str, schema: TaskSchema | None) -> str | None:
    try:
        task = check_materialized(row) if is_materialized(row) else materialize_task(row, taskset=taskset, task_index=0)
        if schema is not None:
            schema.check(task["task_input"])
    except TaskError as error:
        return str(error)
    return None
