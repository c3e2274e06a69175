"""A list of evaluations with shared settings, as a file: what `gym eval batch` runs.

Owns the file's form and the command line of each run. What a run is (its configs, rows, servers) is checked by
`gym eval run` itself, which every run is a process of.
"""

import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from gym.config.errors import ConfigErrors, Problem, UserError
from gym.config.roots import find_file, search_roots
from gym.config.schema import Section
from gym.config.tree import Block, Items, at
from gym.config.validate import validate
from gym.config.yamlfile import read_yaml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OUTPUT_NAME = "rollouts.jsonl"
"""Each run's output, in a folder of the run's name."""


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_one_or_more)]


class RunSettings(Section):
    """What may be shared: options of `gym eval run` under their own names, with `overrides` for its arguments."""

    config: Texts = Field(default_factory=list[str])
    model_type: str | None = None
    agent_type: str | None = None
    overrides: Texts = Field(default_factory=list[str])
    input: str | None = None
    dataset: str | None = None
    agent: str | None = None
    env: str | None = None
    limit: int | None = None
    concurrency: int | str | None = None
    num_repeats: int | None = None
    attempts: int | None = None


class BatchRun(RunSettings):
    """One evaluation. A bare text in the list is a run with that config and nothing else."""

    name: str = ""
    """Of its folder; else what its config is called."""

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_config_alone(cls, value: Any) -> Any:
        return {"config": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_a_name(self) -> "BatchRun":
        if not self.name and self.config:
            path = PurePosixPath(self.config[0])
            self.name = path.parent.name if path.stem == "config" else path.stem
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a run needs a name of letters, digits, '.', '_' and '-' for its folder, not {self.name!r}: add name: …")
        return self

    def arguments(self) -> list[str]:
        """The arguments of `gym eval run`, without those for its output."""
        told = [word for config in self.config for word in ("--config", config)]
        for option in ("model_type", "agent_type", "input", "dataset", "agent", "env", "limit", "concurrency", "num_repeats", "attempts"):
            value = getattr(self, option)
            if value is not None:
                told += [f"--{option.replace('_', '-')}", str(value)]
        return [*told, *self.overrides]


class BatchList(Section):
    """The file."""

    shared: RunSettings = Field(default_factory=RunSettings)
    """Laid over each run's configs; its other settings are for runs that do not say otherwise."""
    runs: list[BatchRun] = Field(min_length=1)


def read_batch(path: Path, overrides: list[str], limit: int | None = None) -> list[BatchRun]:
    """The runs of a list, each with the shared settings and those of the command line. Raises UserError: every mistake, with its place."""
    found = find_file(path, search_roots())
    if found is None:
        raise UserError(f"there is no batch list {path}: check the path")
    block, problems = read_yaml(found, str(path))
    listed = None
    if block is not None and not problems:
        listed, problems = validate(BatchList, (), block, ())
    if block is None or listed is None or problems:
        raise ConfigErrors(problems)
    _refuse_same_names(listed, block)
    return [_with_shared(run, listed.shared, overrides, limit) for run in listed.runs]


def _with_shared(run: BatchRun, shared: RunSettings, overrides: list[str], limit: int | None) -> BatchRun:
    settings = {**shared.model_dump(exclude_none=True), **run.model_dump(exclude_none=True)}
    settings |= {"config": [*run.config, *shared.config], "overrides": [*shared.overrides, *run.overrides, *overrides]}
    return BatchRun.model_validate(settings | ({} if limit is None else {"limit": limit}))


def _refuse_same_names(listed: BatchList, block: Block) -> None:
    counted = Counter(run.name for run in listed.runs)
    node = at(block, ("runs",))
    places = node.children if isinstance(node, Items) else ()
    problems = [
        Problem("duplicate-name", f"runs[{number}]", f"another run is called '{run.name}' too", "add name: … to one of them", place.origin)
        for number, (run, place) in enumerate(zip(listed.runs, places, strict=True))
        if counted[run.name] > 1
    ]
    if problems:
        raise ConfigErrors(problems)
