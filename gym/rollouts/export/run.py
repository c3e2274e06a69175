"""Export: rollouts in, records of one form out, and an account of those that were left out.

Invariant: every row of the input is either written or counted under the reason why not; a line
that is no rollout ends the export, and then nothing is written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gym.config.errors import UserError
from gym.rollouts.export.atif import atif
from gym.rollouts.export.nemo_rl import nemo_rl
from gym.rollouts.export.outputs import Documents, Lines, Output, Table, new_output
from gym.rollouts.export.rollout import Rollout, Unusable, what_is_missing
from gym.rollouts.export.swebench import swebench_predictions
from gym.rollouts.export.trl import trl, trl_token_ids
from gym.rollouts.export.turns import LiftedRow, load_row
from gym.rollouts.export.verl import verl
from gym.tasks.rows import RowProblem, read_rows


class Format(StrEnum):
    """Who is to read the export."""

    NEMO_RL = "nemo-rl"
    VERL = "verl"
    TRL = "trl"
    ATIF = "atif"
    SWEBENCH_PREDICTIONS = "swebench-predictions"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export, and where to."""

    input: Path
    output: Path
    format: Format
    include_masked: bool = False
    token_ids: bool = False
    """TRL only: token ids in place of messages."""
    rollout_index: int | None = None
    """Only the rollouts of this number of their tasks; None: all of them, and for predictions the first."""
    overwrite: bool = False


@dataclass(slots=True)
class Summary:
    """What came of the rows."""

    written: int = 0
    skipped: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The lines that were left out, by the reason."""

    @property
    def rows(self) -> int:
        """How many rows there were."""
        return self.written + sum(map(len, self.skipped.values()))

    def lines(self) -> list[str]:
        """One line for each reason."""
        return [f"skipped {len(lines)}: {reason} (first at line {lines[0]})" for reason, lines in self.skipped.items()]


def export(options: ExportOptions) -> Summary:
    """Write the export. Raises UserError, and then leaves what was there, if a line is no rollout or none can be written."""
    write, kind = _form(options)
    chosen = _Chosen(options)
    summary = Summary()
    with new_output(options.output, kind, overwrite=options.overwrite, source=options.input) as output:
        for line, rollout in _rollouts(options.input):
            try:
                chosen.check(rollout)
                record = write(rollout)
            except Unusable as error:
                summary.skipped.setdefault(error.reason, []).append(line)
            else:
                output.add(rollout.id, record)
                summary.written += 1
        if not summary.written:
            reasons = "; ".join(summary.lines()) or "it has no rows"
            raise UserError(f"{options.input} has no row that can be exported as {options.format}, so nothing was written: {reasons}")
    return summary


class _Chosen:
    """Which rollouts are asked for."""

    def __init__(self, options: ExportOptions) -> None:
        self._masked = options.include_masked
        self._index = options.rollout_index
        self._seen: set[object] | None = None
        if options.format is Format.SWEBENCH_PREDICTIONS:
            # Its reader keeps the last prediction of an instance. Rows stand in the order in which they were
            # done, so the first or last of several would be the quickest or slowest, and no fair choice.
            self._index = self._index or 0
            self._seen = set()

    def check(self, rollout: Rollout) -> None:
        """Raise Unusable for a rollout that is not."""
        if self._index is not None and rollout.index != self._index:
            raise Unusable(f"not rollout {self._index} of its task (--rollout-index)")
        if rollout.masked is not None and not self._masked:
            raise Unusable(f"masked: {rollout.masked}")
        instance: Any = rollout.row.get("instance_id")
        if self._seen is not None and instance is not None:
            if instance in self._seen:
                raise Unusable("an instance that stands there already")
            self._seen.add(instance)


def _form(options: ExportOptions) -> tuple[Callable[[Rollout], Any], type[Output]]:
    """How a rollout is written, and into what. Raises UserError for an output of another kind."""
    if options.token_ids and options.format is not Format.TRL:
        raise UserError(f"--token-ids is for --format trl: {options.format} takes token ids wherever they are")
    forms: dict[Format, tuple[Callable[[Rollout], Any], type[Output]]] = {
        Format.NEMO_RL: (nemo_rl, Lines),
        Format.VERL: (verl, Table),
        Format.TRL: (trl_token_ids if options.token_ids else trl, Lines),
        Format.ATIF: (atif, Lines if options.output.suffix == ".jsonl" else Documents),
        Format.SWEBENCH_PREDICTIONS: (swebench_predictions, Lines),
    }
    write, kind = forms[options.format]
    suffixes: dict[type[Output], str] = {Lines: ".jsonl", Table: ".parquet"}
    wrong = options.output.suffix in (".json", ".parquet") if kind is Documents else options.output.suffix != suffixes[kind]
    if wrong:
        raise UserError(f"--output {options.output}: {options.format} is written as {kind.shape}")
    return write, kind


def _rollouts(path: Path) -> Iterator[tuple[int, Rollout]]:
    for row in read_rows(path, loads=load_row):
        if isinstance(row, RowProblem):
            raise UserError(f"{row}; nothing was written")
        if (missing := what_is_missing(row.value)) is not None:
            raise UserError(f"{path}:{row.line}: no rollout: {missing}; the input must be what 'gym eval run' wrote; nothing was written")
        lifted = row.value.turns if isinstance(row.value, LiftedRow) else None
        yield row.line, Rollout(row.value, row.raw, lifted)
