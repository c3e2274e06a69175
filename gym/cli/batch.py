"""`gym eval batch`: several evaluations, one after the other. Thin: reads arguments, runs the list, prints the summary."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gym.cli.env import Overrides

_GYM = (sys.executable, "-c", "from gym.cli.main import main; main()")


def add_to(app: typer.Typer) -> None:
    """Add the command to `gym eval`."""
    app.command()(batch)


def batch(
    listed: Annotated[Path, typer.Argument(metavar="LIST", help="A YAML file with runs and shared settings; see docs/rollouts.md.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where all goes: a folder for each run, and the summary.")
    ],
    overrides: Overrides = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many rows in each run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin every run anew; else what is unfinished is gone on with.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all runs, print their commands, and start nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary on stdout as JSON in place of the table.")] = False,
) -> None:
    """Run a list of evaluations one after the other, each with an output folder of its own, and sum up.

    All are checked before the first begins. One that fails does not stop the others; the same command goes on with what is unfinished.

    Exit codes: 0 all rollouts of all runs measured; 76 some were masked, failed or owed; 1 a run failed, or a mistake in the list or in
    a run's options or config; 2 wrong usage; 130 interrupted.
    """
    import orjson

    from gym.cli.env import check_overrides
    from gym.config.errors import UserError
    from gym.rollouts import batch_summary
    from gym.rollouts.batch import read_batch
    from gym.rollouts.batch_runs import Batch

    check_overrides(overrides)
    runs = read_batch(listed, overrides or [], limit)
    job = Batch(runs, output, _GYM, overwrite=overwrite)
    problems = job.problems()
    if job.interrupted:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130)
    if problems:
        raise UserError("\n".join(f"{name}: {line}" for name, said in problems.items() for line in said.splitlines()))
    if dry_run:
        for run in runs:
            typer.echo(shlex.join(["gym", *job.command(run)]))
        return
    ends = job.run(lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(orjson.dumps(batch_summary.as_dict(ends, interrupted=job.interrupted)))
    else:
        typer.echo(batch_summary.as_text(ends), nl=False)
    raise typer.Exit(batch_summary.exit_code(ends, interrupted=job.interrupted))
