"""How the runs of a batch ended: one entry each, as JSON and as a table."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gym.rollouts.collect import EXIT_ERROR, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from gym.rollouts.files import write_atomically, write_json
from gym.tables import table_lines

SUMMARY_JSON, SUMMARY_TEXT = "summary.json", "summary.txt"
_COUNTS = ("expected", "measured", "masked", "unscored", "failed", "owed")


class State(StrEnum):
    """How a run of a batch stands."""

    NOT_BEGUN = "not begun"
    COMPLETE = "complete"
    """Every rollout was measured, or unscored by choice."""
    INCOMPLETE = "incomplete"
    """It ran to its end, and some rollouts were masked, failed or owed."""
    ERROR = "error"
    """It was stopped by a mistake, or broke."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class RunEnd:
    """How one run stands. What is not known is None."""

    name: str
    output: str
    state: State = State.NOT_BEGUN
    exit_code: int | None = None
    problem: str | None = None
    account: dict[str, int] | None = None
    mean_reward: float | None = None
    standard_error: float | None = None
    seconds: float = 0.0
    """Of this batch."""


def ended(name: str, output: Path, code: int, records: list[dict[str, Any]], seconds: float) -> RunEnd:
    """The entry of a run, from its exit code and the records that it printed."""
    last: dict[str, Any] = records[-1] if records else {}
    coverage: dict[str, int] | None = last.get("coverage")
    metrics: dict[str, Any] = last.get("metrics") or {}
    problem: str | None = last.get("problem") or last.get("message")
    if code < 0:
        problem = f"killed by signal {-code}"
    elif code not in (EXIT_OK, EXIT_INCOMPLETE, EXIT_INTERRUPTED) and problem is None:
        problem = f"ended with exit code {code}"
    states = {EXIT_OK: State.COMPLETE, EXIT_INCOMPLETE: State.INCOMPLETE, EXIT_INTERRUPTED: State.INTERRUPTED}
    return RunEnd(
        name,
        str(output),
        states.get(code, State.ERROR),
        code,
        problem,
        {key: coverage[key] for key in _COUNTS} if coverage else None,
        metrics.get("mean_reward"),
        metrics.get("standard_error"),
        round(seconds, 1),
    )


def exit_code(ends: list[RunEnd], *, interrupted: bool) -> int:
    """That of the batch: the worst of its runs."""
    states = {end.state for end in ends}
    if interrupted or State.INTERRUPTED in states:
        return EXIT_INTERRUPTED
    if State.ERROR in states:
        return EXIT_ERROR
    return EXIT_OK if states == {State.COMPLETE} else EXIT_INCOMPLETE


def as_dict(ends: list[RunEnd], *, interrupted: bool) -> dict[str, Any]:
    """The summary as JSON."""
    code = exit_code(ends, interrupted=interrupted)
    return {"schema_version": 1, "event": "batch", "exit_code": code, "interrupted": interrupted, "runs": [asdict(end) for end in ends]}


def as_text(ends: list[RunEnd]) -> str:
    """The summary as a table, and below it what went wrong."""
    rows = [["run", "state", *_COUNTS, "mean reward", "time"], *(_cells(end) for end in ends)]
    problems = [f"{end.name}: {end.problem}" for end in ends if end.problem]
    return "\n".join([*table_lines(rows), *problems]) + "\n"


def _cells(end: RunEnd) -> list[str]:
    counts = [str(end.account[key]) if end.account else "" for key in _COUNTS]
    error = f" ± {end.standard_error:.4f}" if end.standard_error is not None else ""
    reward = f"{end.mean_reward:.4f}{error}" if end.mean_reward is not None else ""
    minutes, seconds = divmod(round(end.seconds), 60)
    hours, minutes = divmod(minutes, 60)
    time = f"{hours}:{minutes:02}:{seconds:02}" if end.state is not State.NOT_BEGUN else ""
    return [end.name, end.state.value, *counts, reward, time]


def write(folder: Path, ends: list[RunEnd], *, interrupted: bool) -> None:
    """Write both forms into the batch's folder. Raises OSError."""
    write_json(folder / SUMMARY_JSON, as_dict(ends, interrupted=interrupted))
    write_atomically(folder / SUMMARY_TEXT, [as_text(ends).encode()])
