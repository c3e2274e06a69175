"""The files of one collection: their names beside the output, and writing the small ones whole.

Invariant: a JSON side file is either the old one or the new one, never a part: it is written
beside its place, synced and renamed.
"""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gym.config.errors import UserError


@dataclass(frozen=True)
class OutputFiles:
    """Where everything of one collection goes: `<stem>.jsonl` and its neighbours."""

    output: Path

    @property
    def stem(self) -> str:
        """The output's name without its suffix."""
        return self.output.stem

    def _beside(self, suffix: str) -> Path:
        return self.output.with_name(self.stem + suffix)

    @property
    def failures(self) -> Path:
        """One row per failed attempt."""
        return self._beside("_failures.jsonl")

    @property
    def materialized(self) -> Path:
        """One line per rollout: its ids and its task."""
        return self._beside("_materialized_inputs.jsonl")

    @property
    def manifest(self) -> Path:
        """Digests, versions and the next attempt of each rollout."""
        return self._beside("_manifest.json")

    @property
    def attempts(self) -> Path:
        """The journal of reserved attempts; it exists only while the run does, and after a kill."""
        return self._beside("_attempts.jsonl")

    @property
    def coverage(self) -> Path:
        """What became of every expected rollout."""
        return self._beside("_coverage.json")

    @property
    def metrics(self) -> Path:
        """Metrics over the written rows."""
        return self._beside("_aggregate_metrics.json")

    @property
    def model_calls(self) -> Path:
        """A folder: one file with the model calls of each attempt, where they are kept."""
        return self._beside("_model_calls")

    @property
    def lock(self) -> Path:
        """Held while a collector runs."""
        return self._beside("_run.lock")

    @property
    def results(self) -> tuple[Path, ...]:
        """Every file that a run leaves, the lock aside."""
        return (self.output, self.failures, self.materialized, self.manifest, self.attempts, self.coverage, self.metrics)

    def check_new(self, *, overwrite: bool, resume: bool | None = False, inputs: Iterable[Path] = ()) -> None:
        """Raise UserError if the output cannot be begun: it exists, is no plain file, or is one of the inputs.

        `resume` is None where nothing can be gone on with.
        """
        if not self.output.name or self.output.is_dir():
            raise UserError(f"--output {self.output} is a folder: name a file, such as {self.output / 'out.jsonl'}")
        for path in self.results:
            if path.exists() and not path.is_file():
                raise UserError(f"{path} exists and is no plain file: choose another --output")
            if any(path.exists() and source.exists() and path.samefile(source) for source in inputs):
                raise UserError(f"the input {path} is one of the files that this run writes: choose another --output")
        existing = [path.name for path in (*self.results, self.model_calls) if path.exists()]
        if existing and not overwrite and not resume:
            raise UserError(
                f"the output exists already ({', '.join(existing)} in {self.output.parent}): "
                f"choose another --output, {'' if resume is None else 'go on with it with --resume, '}or replace it with --overwrite"
            )

    def check_writable(self) -> None:
        """Raise UserError if nothing can be written beside the output: a folder that is none, or may not be written."""
        folder = self.output.absolute().parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise UserError(f"the folder of --output {self.output} cannot be made: {folder} is a file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"--output {self.output} cannot be written: no leave to write in {folder}")

    def remove_results(self) -> None:
        """Remove what an earlier run left under this stem; the lock file stays."""
        for path in (self.manifest, *self.results):  # without a manifest nothing is resumed, should we be killed half-way
            path.unlink(missing_ok=True)
        if self.model_calls.is_dir():
            shutil.rmtree(self.model_calls)


def rollouts_beside(path: Path) -> Path | None:
    """The rollouts that `path` is a side file of, if it is one."""
    cuts = (index for index, letter in enumerate(path.name) if letter == "_")
    beside = (OutputFiles(path.with_name(f"{path.name[:cut]}.jsonl")) for cut in cuts)
    return next((files.output for files in beside if path in files.results and files.output.is_file()), None)


def check_target(path: Path, inputs: Iterable[Path], called: str) -> None:
    """Raise UserError if `--output path` cannot be one new file: its folder is missing, or it is one of `inputs`, which are `called`."""
    if path.is_dir() or not path.parent.is_dir() or any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise UserError(f"--output {path}: name a file in a folder that is there, and none of {called}")


def write_atomically(path: Path, parts: Iterable[bytes]) -> None:
    """Replace `path` by the joined `parts`, synced to disk; its permissions stay. Raises OSError; then `path` is as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace `path` by `value` as indented JSON. Raises OSError."""
    write_atomically(path, [orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)])


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable, where its file system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse; the rename itself has happened
    finally:
        os.close(descriptor)
