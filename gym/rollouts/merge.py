"""Merging shards: the files of one run from those of its parts.

Invariant: only the finished parts of one run are merged, every part once; the account is read back from what
was written, so a rollout that stood in two parts is found. The result can be resumed like any other run.
Parts are left as they are.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from gym.config.digests import differing
from gym.config.errors import UserError, listed
from gym.rollouts.collect import Summary
from gym.rollouts.coverage import coverage_of
from gym.rollouts.files import OutputFiles, write_json
from gym.rollouts.lock import run_lock
from gym.rollouts.manifest import CHANGED, RESUMED_BY, read_head, read_next_attempts, write_manifest
from gym.rollouts.metrics import compute_metrics
from gym.rollouts.resume import read_back

_BLOCK = 1 << 20


def merge(output: Path, shards: Iterable[Path], *, overwrite: bool = False) -> Summary:
    """Write the whole at `output`. Raises UserError if the shards are not all of one finished run."""
    files, parts = OutputFiles(output), [OutputFiles(path) for path in shards]
    files.check_new(overwrite=overwrite, resume=None, inputs=[path for part in parts for path in part.results])
    files.check_writable()
    twice = sorted({str(part.output) for part in parts if sum(other.output.resolve() == part.output.resolve() for other in parts) > 1})
    if twice:
        raise UserError(f"{listed(twice)} is named twice: name each shard of the run once")
    with contextlib.ExitStack() as stack:
        for part in parts:
            if not part.manifest.exists():
                raise UserError(f"{part.output} has no manifest ({part.manifest.name}) beside it: name the output of a shard")
            stack.enter_context(run_lock(part.lock, told=False))
        head = _whole(parts)
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run_lock(files.lock))
            return _write(files, parts, head)
        except OSError as error:
            raise UserError(f"{error.filename or output} cannot be read or written: {error.strerror or error}") from None


def _whole(parts: list[OutputFiles]) -> dict[str, Any]:
    """The manifest of the whole, without its tasks."""
    heads = [read_head(part.manifest) for part in parts]
    first = heads[0]
    shards: dict[str, Path] = {}
    for part, head in zip(parts, heads, strict=True):
        if part.attempts.exists() or head["finished_at"] is None:
            raise UserError(f"{part.output} was not brought to its end: go on with it with --resume, and merge then")
        different = [name for name in first["asked"] if name != "--shard" and first["asked"][name] != head["asked"].get(name)]
        different += ["rows"] if head["source_digest"] != first["source_digest"] else []
        different += differing(first["config_keys"], head["config_keys"])
        if different:
            raise UserError(f"{part.output} and {parts[0].output} are not of one run: they differ in {listed(different[:8])}")
        shard = head["asked"]["--shard"]
        if shard is None or shard in shards:
            what = "no shard" if shard is None else f"shard {shard}, and so is {shards[shard]}"
            raise UserError(f"{part.output} is {what}: name each shard of one run once")
        shards[shard] = part.output
    number = int(next(iter(shards)).partition("/")[2])
    missing = [f"{part}/{number}" for part in range(1, number + 1) if f"{part}/{number}" not in shards]
    if missing or len(shards) != number:
        raise UserError(
            f"not all shards of one run are named: {listed(missing or sorted(shards))} {'are missing' if missing else 'are given'}"
        )
    sums = {key: sum(head[key] for head in heads) for key in ("rows", "bad_rows", "positional_rows", "expected", "invalid")}
    changed = sorted({key for head in heads for key in head.get(CHANGED, [])})
    return {
        **first,
        **sums,
        "asked": {**first["asked"], "--shard": None},
        "max_rollout_attempts": max(head["max_rollout_attempts"] for head in heads),
        RESUMED_BY: [run_id for head in heads for run_id in head.get(RESUMED_BY, [])],
        CHANGED: changed,
        "merged_from": [head["run_id"] for head in heads],
    }


def _write(files: OutputFiles, parts: list[OutputFiles], head: dict[str, Any]) -> Summary:
    files.remove_results()
    _concatenate(files.output, [part.output for part in parts])
    _concatenate(files.failures, [part.failures for part in parts])
    head["tasks_digest"] = _concatenate(files.materialized, [part.materialized for part in parts])
    for part in parts:
        if part.model_calls.is_dir():
            shutil.copytree(part.model_calls, files.model_calls, dirs_exist_ok=True)
    write_manifest(files.manifest, head, chain.from_iterable(read_next_attempts(part.manifest) for part in parts))
    past = read_back(files, head["max_rollout_attempts"])
    coverage = coverage_of(past.ledger, invalid=head["invalid"], max_attempts=head["max_rollout_attempts"])
    run_id: str = head["run_id"]
    write_json(files.coverage, {"run_id": run_id, **coverage.as_dict(), "interrupted": False})
    metrics = {"run_id": run_id, **compute_metrics(files.output, expected=head["expected"])}
    write_json(files.metrics, metrics)
    return Summary(run_id, files, coverage, metrics, interrupted=False)


def _concatenate(path: Path, parts: list[Path]) -> str:
    """Write the parts one behind the other; return the digest of the whole."""
    digest = hashlib.sha256()
    with path.open("wb") as whole:
        for part in parts:
            for block in _blocks(part):
                digest.update(block)
                whole.write(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
