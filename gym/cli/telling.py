"""What a collection says: records on stdout for programs, lines on stderr for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gym.rollouts.collect import Launch, Summary
    from gym.rollouts.resume import Past


def say_opening(launch: "Launch") -> None:
    """Tell people what is about to run."""
    for line in _opening_lines(launch):
        typer.echo(line, err=True)


def say_closing(summary: "Summary") -> None:
    """Tell people how it ended."""
    if summary.problem is not None:
        typer.echo(f"error: {summary.problem}", err=True)
    for line in _closing_lines(summary):
        typer.echo(line, err=True)


def _opening_lines(launch: "Launch") -> list[str]:
    from gym.config.errors import printable

    found = launch.prepared
    lines = [
        f"{_count(found.expected, 'rollout')} of {_count(found.rows, 'row')} -> {printable(str(launch.files.output))} (run {launch.run_id})"
    ]
    if launch.past is not None:
        lines += _resumed_lines(launch.past)
    if found.bad_rows:
        lines.append(f"warning: {found.bad_rows} of {_count(found.rows, 'row')} cannot be run; the first: {found.first_problem}")
    if found.positional_rows:
        lines.append(
            f"warning: {_count(found.positional_rows, 'row')} without task_id, problem_id or instance_id, named by position: "
            "names change when rows are added or moved"
        )
    return lines


def _resumed_lines(past: "Past") -> list[str]:
    from gym.config.errors import listed

    ended = past.before.expected - past.before.owed
    lines = [f"resumed: {_count(ended, 'rollout')} ended before, {past.to_run} to run"]
    lines += [f"warning: the last line of {name} was torn: {cut} bytes are cut" for name, cut in past.torn.items()]
    if past.changed:
        lines.append(f"warning: not as in the run that is gone on with: {listed(past.changed)}")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _closing_lines(summary: "Summary") -> list[str]:
    lines = [_account(summary)]
    if summary.problem is None:
        lines += _first_failure(summary.files.failures)  # also of attempts that were made good: somebody broke
    return lines


def _first_failure(path: Path) -> list[str]:
    """Where to look, and one reason: an account of kinds alone says nothing that can be acted on."""
    import orjson

    from gym.config.errors import printable
    from gym.protocol.rollouts import FAILURE_MESSAGE, FAILURE_STAGE, ROLLOUT_ID
    from gym.rollouts.outcomes import failure_line

    try:
        with path.open("rb") as lines:
            row = orjson.loads(next(lines, b"{}"))
        first = failure_line(row[ROLLOUT_ID], row.get(FAILURE_STAGE), str(row[FAILURE_MESSAGE]))
        return [f"failed attempts are in {printable(str(path))}; the first, of {first}"]
    except (OSError, ValueError, KeyError):
        return []  # it could not be written, and that has been said


def _account(summary: "Summary") -> str:
    overall: dict[str, Any] = summary.metrics.get("overall") or {}
    mean, error = overall.get("mean_reward"), overall.get("standard_error")
    reward = f"; mean reward {mean:.4f}" + (f" ± {error:.4f}" if error is not None else "") if mean is not None else ""
    state = "interrupted: " if summary.interrupted else ""
    return f"{state}{summary.coverage.line()}{reward}"


def say_record(value: dict[str, Any]) -> None:
    """Print a record on stdout. If nobody reads it any more, the run goes on: its account is in the files."""
    import os
    import sys

    import orjson

    try:
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
        sys.stdout.flush()
    except OSError as error:
        typer.echo(f"the {value['event']} record could not be printed on stdout: {error.strerror or error}; the run goes on", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
