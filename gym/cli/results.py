"""`gym eval aggregate`, `compare` and `report`: what rollouts that were written say. Thin: reads arguments, prints on stdout."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gym.cli.tables import print_table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout in place of the text.")]
_QUIET_SECONDS = 1.0


def add_to(app: typer.Typer) -> None:
    """Add the commands to `gym eval`."""
    app.command()(aggregate)
    app.command()(compare)
    app.command()(report)


def aggregate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Rollouts, as 'gym eval run' wrote them; shards of one run, or several runs.")
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the metrics there too, as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the metrics of rollouts: means with errors clustered by task, pass@k, pass^k, and majority@k where rows have answers.

    Masked rows are counted and enter no number. Tasks of one name are one task, in whichever file they stand.

    Exit codes: 0 done; 1 a file cannot be read, or a line of it is no rollout; 2 wrong usage.
    """
    from gym.rollouts.aggregate import aggregate as run_aggregate
    from gym.rollouts.aggregate import as_table
    from gym.rollouts.files import check_target, write_json

    if output is not None:
        check_target(output, files, "the inputs")
    metrics = run_aggregate(files, progress=_progress())
    if output is not None:
        write_json(output, metrics)
    if as_json:
        _print_json(metrics)
        return
    print_table(as_table(metrics))
    for note in metrics["notes"]:
        typer.echo(note, err=True)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Rollouts of the one model, agent or version.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Rollouts of the other, on the same tasks.")],
    as_json: AsJson = False,
) -> None:
    """Compare the rollouts of B with those of A, task by task.

    Prints the mean difference, with an interval of 95 % that is paired by task, and which tasks were gained and lost.

    Exit codes: 0 done; 1 a file cannot be read, a line of it is no rollout, or the two have no task in common; 2 wrong usage.
    """
    from gym.config.errors import UserError
    from gym.rollouts.compare import compare as run_compare

    found = run_compare(a, b, progress=_progress())
    if not found.tasks:
        raise UserError(f"{a} and {b} have no task that was measured in both: compare runs of the same data set")
    if as_json:
        _print_json(found.as_dict())
        return
    for line in found.lines((str(a), str(b))):
        typer.echo(line)


def report(
    rollouts: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rollouts, as 'gym eval run' wrote them; the files beside it are read too.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes; else X_report.html beside X.jsonl.")
    ] = None,
    transcripts: Annotated[
        int, typer.Option("--transcripts", min=0, metavar="N", help="Put the transcripts of so many rollouts in.")
    ] = 5000,
) -> None:
    """Write one HTML page of a run: its account, metrics, tasks, and every rollout with its transcript, verdict and timings.

    The page opens from disk and needs no network. Texts of more than 20,000 characters are cut in their middle.

    Exit codes: 0 written; 1 a file cannot be read, or a line of it is no rollout, and nothing was written; 2 wrong usage.
    """
    from gym.rollouts.report import write_report

    page = output or rollouts.with_name(f"{rollouts.stem}_report.html")
    number = write_report(rollouts, page, transcripts=transcripts)
    typer.echo(f"{number} rollouts -> {page}", err=True)


def _progress() -> Callable[[int], None]:
    """Says on stderr how many rows were read, once a second, if it takes that long."""
    last = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _QUIET_SECONDS:
            last = time.monotonic()
            typer.echo(f"{rows} rows read", err=True)

    return tell


def _print_json(value: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))
